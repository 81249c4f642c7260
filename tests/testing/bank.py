"""Jobs for these tests; `jobs_of(harness)` makes them anew for an app (not shared: Celery gives those to all apps)."""

from types import SimpleNamespace
from typing import Any

import tenacity
from pydantic import PositiveInt
from sqlalchemy import text
from sqlalchemy.orm import Session

from harness import Harness, Job, JobTask, NotReady, Permanent, Policy, RetryLater, backoff

twice = Policy(stop=tenacity.stop_after_attempt(2), wait=backoff(base=10, cap=20), reason="tests")


def note(session: Session, job: Job, what: str = "") -> None:
    session.execute(text("INSERT INTO ledger (job_id, note) VALUES (:id, :note)"), {"id": job.id, "note": what})


def notes(session: Session) -> list[tuple[str, str]]:
    return [(row.job_id, row.note) for row in session.execute(text("SELECT job_id, note FROM ledger ORDER BY id"))]


def jobs_of(harness: Harness) -> Any:
    def may_replay(session: Session, arguments: Any) -> bool:
        return bool(session.execute(text("SELECT count(*) FROM parents WHERE id = :id"), arguments).scalar())

    @harness.job(name="credit", shared=False, policy=twice)
    def credit(session: Session, job: Job, points: PositiveInt = 1) -> int:
        note(session, job, str(points))
        return points

    @harness.job(name="fails", shared=False, policy=twice)
    def fails(session: Session, job: Job, good: int = 99) -> None:
        note(session, job, f"try {job.attempt}, delivery {job.deliveries}")
        if job.attempt < good:
            raise ValueError(f"try {job.attempt} failed")

    @harness.job(name="needs_parent", shared=False, can_replay=may_replay)
    def needs_parent(session: Session, id: int) -> None:
        if not may_replay(session, {"id": id}):
            raise Permanent("no parent")

    @harness.job(name="runs", shared=False)
    def runs(session: Session, statement: str) -> None:
        session.execute(text(statement))

    @harness.job(name="swallows", shared=False)
    def swallows(session: Session) -> None:
        try:
            session.execute(text("SELECT 1/0"))
        except Exception:
            pass

    @harness.job(name="goes_on", shared=False)
    def goes_on(session: Session) -> None:
        try:
            session.execute(text("SELECT 1/0"))
        except Exception:
            pass
        session.execute(text("SELECT 1"))

    @harness.job(name="commits", shared=False)
    def commits(session: Session) -> None:
        session.commit()

    @harness.job(name="not_ready", shared=False, policy=Policy(not_ready_deadline=300))
    def not_ready(session: Session) -> None:
        raise NotReady("not yet")

    @harness.job(name="later", shared=False, policy=twice)
    def later(session: Session, job: Job) -> None:
        if job.attempt == 1:
            raise RetryLater(7)

    @harness.job(name="bound", shared=False, bind=True, policy=twice)
    def bound(self: JobTask, session: Session, job: Job) -> list[Any]:
        if job.attempt == 1:
            self.retry(countdown=3)
        return [self.request.id == job.id, self.request.retries, self.request.delivery_info["routing_key"]]

    @harness.job(name="sends", shared=False)
    def sends(session: Session, job: Job, levels: int) -> None:
        note(session, job, str(levels))
        if levels:
            sends.apply_async(kwargs={"levels": levels - 1}, task_id=f"level-{levels - 1}")
        plain.delay(levels)

    @harness.app.task(name="plain", shared=False)
    def plain(n: int) -> int:
        return n + 1

    made = locals()
    return SimpleNamespace(**{name: value for name, value in made.items() if hasattr(value, "apply_async")})
