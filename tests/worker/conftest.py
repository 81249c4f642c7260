"""Fixtures of the process tests."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from tests.worker.running import ForkedWorker, State, Worker, client


@pytest.fixture
def state(database: str) -> Iterator[State]:
    made = State(database)
    yield made
    made.close()


@pytest.fixture
def start_worker(broker_url: str, database: str, state: State, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Starts workers on `broker_url` and `database`; ended after the test."""
    started: list[Worker] = []

    def start(**options: Any) -> Worker:
        worker = ForkedWorker(broker_url, database, tmp_path / f"worker{len(started)}.log", **options)
        started.append(worker)
        return worker.start()

    yield start
    for worker in started:
        worker.end()


@pytest.fixture
def worker(start_worker: Callable[..., Worker]) -> Worker:
    return start_worker()


@pytest.fixture
def sender(broker_url: str) -> Iterator[Celery]:
    app = client(broker_url)
    yield app
    app.close()
