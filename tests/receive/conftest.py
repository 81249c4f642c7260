"""Receivers, and a connection to send what they take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.enqueue.conftest import Shop, shop
from tests.receive.running import Receiver
from tests.worker.conftest import start_worker, state
from tests.worker.wires import Wires

__all__ = ["Shop", "shop", "start_worker", "state"]


@pytest.fixture
def wires(broker_url: str) -> Iterator[Wires]:
    made = Wires(broker_url, "orders")
    yield made
    made.close()


@pytest.fixture
def start_receiver(broker_url: str, database: str, tmp_path: Path) -> Iterator[Callable[..., Receiver]]:
    """Starts receivers on `broker_url` and `database`; ended after the test."""
    started: list[Receiver] = []

    def start(*sources: str, **settings: Any) -> Receiver:
        made = Receiver(broker_url, database, tmp_path / f"receiver{len(started)}.log", *sources, **settings)
        started.append(made)
        return made.start()

    yield start
    for receiver in started:
        receiver.kill()
