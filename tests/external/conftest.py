"""Fixtures of the external tests."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.core.ids import idempotency_key
from tests.external.service import Service
from tests.worker.conftest import sender, start_worker, state
from tests.worker.running import ForkedWorker, Worker

__all__ = ["sender", "start_worker", "state"]


class ExternalWorker(ForkedWorker):
    app = "tests.external.jobs"


@pytest.fixture
def service() -> Iterator[Service]:
    with Service().running() as service:
        yield service


@pytest.fixture
def calls(service: Service) -> Callable[[str, str], int]:
    """How often the other side was called for a job: `(task, job_id)`."""

    def count(task: str, job_id: str) -> int:
        return service.calls[idempotency_key(f"tests/{task}", job_id)]

    return count


@pytest.fixture
def start(broker_url: str, database: str, state: Any, tmp_path: Any) -> Iterator[Callable[..., Worker]]:
    started: list[Worker] = []

    def make(**options: Any) -> Worker:
        worker = ExternalWorker(broker_url, database, tmp_path / f"worker{len(started)}.log", **options)
        started.append(worker)
        return worker.start()

    yield make
    for worker in started:
        worker.end()
