"""Large messages: memory is bounded by what is in the receiver's hand, and none is lost, or tried for ever."""

from __future__ import annotations

import hashlib
import json
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


def test_one_that_is_too_large_to_be_kept(broker_url: str, database: str, tmp_path: Path) -> None:
    """Its beginning is kept, with the length and the digest of the whole. Measured once with 300 MiB, see the docs."""
    state, wires = State(database), Wires(broker_url, "orders")
    receiver = Receiver(broker_url, database, tmp_path / "log", "orders")
    receiver.environment["TEST_SMALL_LIMITS"] = "1"
    receiver.start()
    try:
        kept, cut = body(1_900_000), body(2_100_000)
        send(broker_url, kept=kept, cut=cut, small=body(20))
        until(lambda: len(state.letters()) == 2, 60, "both are letters")
        until(lambda: state.inbox("small"), 60, "and the receiver goes on")
        whole, beginning = state.letter("kept"), state.letter("cut")
        assert bytes(whole.body) == kept
        assert (bytes(beginning.body), beginning.reason) == (cut[:1_000_000], "undecodable")
        told = json.loads(bytes(beginning.headers))["harness_cut"]
        assert told == {"bytes": len(cut), "sha256": hashlib.sha256(cut).hexdigest()}
        wires.empty(60)
        assert receiver.alive
    finally:
        receiver.kill()
        wires.close()
        state.close()
