"""One receiver for all tests of a module and broker: none of what they send may end it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import BROKERS
from tests.enqueue.conftest import Shop, shop
from tests.receive.running import Receiver
from tests.services import Servers
from tests.worker.running import State
from tests.worker.wires import Wires

__all__ = ["Shop", "shop"]


@dataclass
class Place:
    """A broker, a database and a receiver of all sources between them."""

    broker: str
    database: str
    folder: Path
    wires: Wires
    state: State
    receiver: Receiver

    def ids(self, like: str) -> list[str]:
        """The jobs of the inbox whose ids begin so."""
        rows = self.state.sql("SELECT job_id FROM core.inbox WHERE starts_with(job_id, :like)", like=like)
        return sorted(row.job_id for row in rows)


@pytest.fixture(scope="module", params=BROKERS)
def place(
    request: pytest.FixtureRequest, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    amqp = request.param == "rabbitmq"
    broker = servers.rabbitmq_url() if amqp else servers.redis_url()
    database, folder = servers.databases().make(), tmp_path_factory.mktemp("receive")
    state, wires = State(database), Wires(broker, "orders")
    receiver = Receiver(broker, database, folder / "receiver.log").start()
    yield Place(broker, database, folder, wires, state, receiver)
    receiver.kill()
    wires.close()
    state.close()
    servers.databases().drop(database)
    if amqp:
        servers.close_rabbitmq_url(broker)
