"""PostgreSQL and the broker go away and come back: nothing is lost, nothing is acknowledged unstored, no hot loop."""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from tests.receive.running import Receiver, message
from tests.services import Postgres, RabbitMQ, Service
from tests.worker.running import State, until
from tests.worker.wires import Raw, Wires


def _rows(state: State) -> int:
    return int(state.sql("SELECT count(*) FROM core.inbox")[0][0])


def test_database_and_broker_away(
    own_broker: Service, own_postgres: Postgres, own_database: str, tmp_path: Path
) -> None:
    state, wires = State(own_database), Wires(own_broker.url, "orders")
    receiver = Receiver(own_broker.url, own_database, tmp_path / "log", "orders", "own", harness_receive_batch=5)
    receiver.start()
    try:
        wires.send(message("first"))
        until(lambda: _rows(state) == 1, 60)
        own_postgres.kill()
        for number in range(20):
            wires.send(message(f"o{number}"))
        wires.send(Raw(b"garbage"), "own")
        until(lambda: receiver.says("the database is away, holding"), 60)
        spent = _cpu(receiver)
        until(lambda: receiver.says("the database is away") >= 1 and not own_postgres.running, 5)
        time.sleep(5)
        assert _cpu(receiver) - spent < 1.5
        assert receiver.says("the database is away") < 6
        if isinstance(own_broker, RabbitMQ):
            assert not _redelivered(own_broker)
        own_postgres.start()
        until(lambda: _rows(state) == 21 and len(state.letters()) == 1, 90, "it goes on by itself")

        wires.close()
        own_broker.restart()
        wires = Wires(own_broker.url, "orders")
        until(lambda: receiver.says("receive: ready") >= 2, 90, "it has connected again")
        wires.send(message("o1"))
        wires.send(message("last"))
        until(lambda: state.inbox("last"), 60)
        wires.empty(60)
        assert _rows(state) == 22
        assert receiver.alive
        assert receiver.stop() == 0
    finally:
        receiver.kill()
        state.close()
        wires.close()


def _cpu(receiver: Receiver) -> float:
    assert receiver.process is not None
    times = psutil.Process(receiver.process.pid).cpu_times()
    return float(times.user + times.system)


def _redelivered(broker: RabbitMQ) -> int:
    found = broker.api("GET", "queues/%2F/orders").get("message_stats", {})
    return int(found.get("redeliver", 0))
