"""Large messages: memory is bounded by what is in the receiver's hand, and none is lost, or tried for ever."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kombu import Connection

from harness.worker.receiving import HEAVY
from harness.worker.unpack import LARGEST
from tests.receive.running import Receiver
from tests.services import RabbitMQ, Servers
from tests.worker.running import State, until
from tests.worker.wires import Wires

MB = 1024 * 1024
#: Bytes that a receiver may use for each byte in its hand: the message, its text, the row, the statement.
EACH = 15


@pytest.fixture
def generous(servers: Servers) -> Iterator[RabbitMQ]:
    """A server that takes larger messages than by default."""
    service = servers.own_rabbitmq("{max_message_size, 536870912}")
    yield service
    servers.discard(service)


def body(size: int) -> bytes:
    return b'{"item": "' + b"x" * (size - 12) + b'"}'


def send(url: str, **bodies: bytes) -> None:
    with Connection(url) as connection, connection.Producer() as producer:
        for name, one in bodies.items():
            producer.publish(one, routing_key="orders", content_type="application/json", message_id=name)


def peak(receiver: Receiver) -> int:
    """The most memory that it has used so far, in bytes."""
    assert receiver.process is not None
    status = Path(f"/proc/{receiver.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.rabbitmq
def test_large_ones(generous: RabbitMQ, database: str, tmp_path: Path) -> None:
    state, wires = State(database), Wires(generous.url, "orders")
    receiver = Receiver(generous.url, database, tmp_path / "log", "orders").start()
    try:
        idle, large, too_large = peak(receiver), body(16 * MB), body(LARGEST + 5 * MB)
        send(generous.url, **{f"m{number}": large for number in range(5)})
        until(lambda: state.sql("SELECT count(*) FROM core.inbox")[0][0] == 5, 120, "each is a job")
        assert peak(receiver) - idle < (HEAVY + len(large)) * EACH, "not for all five"
        send(generous.url, too_large=too_large)
        until(state.letters, 120, "it is a letter")
        assert peak(receiver) - idle < len(too_large) * EACH
        [letter] = state.sql(
            "SELECT reason, error_message, length(body) AS size, sha256(body) = sha256(:body) AS same "
            "FROM core.dead_letters WHERE job_id = 'too_large'",
            body=too_large,
        )
        assert (letter.reason, letter.size, letter.same) == ("undecodable", len(too_large), True)
        assert "up to 134,217,728 are read" in letter.error_message
        wires.empty(60)
        assert receiver.alive
    finally:
        receiver.kill()
        wires.close()
        state.close()
