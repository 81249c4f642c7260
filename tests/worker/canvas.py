"""What the canvas tests share: a producer with a result backend, and what the steps have left behind."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

from celery import Celery

from harness import Harness
from harness.testing import failpoints
from tests.worker.running import State, Worker, client, until


class Desk:
    """Makes signatures by name, sends them, and looks at their effects."""

    def __init__(self, broker: str, backend: str, state: State, points: Path) -> None:
        self.app: Celery = client(broker)
        self.app.conf.result_backend = backend
        self.state, self.points = state, points
        self.armed: dict[str, failpoints.FailPoint] = {}

    def s(self, task: str, /, *args: Any, **kwargs: Any) -> Any:
        """A signature; `task_id` names it, `si` makes it immutable."""
        options = {"task_id": kwargs.pop("task_id")} if "task_id" in kwargs else {}
        immutable = kwargs.pop("si", False)
        return self.app.signature(task, args=args, kwargs=kwargs, immutable=immutable, options=options)

    def arm(self, point: str, who: str, whose: str) -> None:
        """Let `who` (process, worker) die at `point` of the job or group `whose`."""
        self.armed[point] = failpoints.arm(self.points, point, f"kill_{who}", whose)

    def fired(self, point: str, worker: Worker | None = None) -> None:
        """Wait until it has died there; a whole worker is started again."""
        until(lambda: self.armed[point].fired, 60, f"fires at {point}")
        if worker is not None:
            until(lambda: not worker.alive, 20, "the worker is dead")
            worker.kill()
            worker.start()

    def runs(self, task: str, job_id: str | None = None) -> list[dict[str, Any]]:
        """The effects of a task, or of one job: what each got, its correlation id and its own id."""
        rows = self.state.sql(
            "SELECT job_id, note FROM ledger WHERE task = :task AND coalesce(:id, job_id) = job_id ORDER BY id",
            task=task,
            id=job_id,
        )
        return [json.loads(row.note) | {"id": row.job_id} for row in rows]

    def of(self, correlation: str) -> list[tuple[str, Any]]:
        """Task and what it got, of everything that carries a correlation id."""
        rows = self.state.sql(
            "SELECT task, note FROM ledger WHERE note::json->>'correlation' = :c ORDER BY id", c=correlation
        )
        return [(row.task, json.loads(row.note)["got"]) for row in rows]

    def fails(self, result: Any) -> None:
        """Wait until a chord's body counts as failed."""
        until(lambda: self.app.AsyncResult(result.id).state == "FAILURE", 60, "the chord has failed")

    def close(self) -> None:
        # A result that is collected later must not look for a server that is gone.
        self.app.backend.remove_pending_result = lambda result: None
        self.app.close()


def new() -> str:
    return uuid4().hex


def replay(database: str, job_id: str, state: State) -> None:
    """As an operator does."""
    from harness.replay.replay import replay as replay_letter

    letter = until(lambda: state.letter(job_id), 30, "a letter")
    app = Celery("operator", broker="memory://", set_as_current=False)
    harness = Harness(app, service="tests", database_url=database)
    try:
        replay_letter(harness.database, harness.store, "tests", letter.id, "operator", harness.events)
    finally:
        harness.close()
