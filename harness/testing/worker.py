"""A real worker on a real broker and database, and what has become of its jobs."""

from functools import cached_property
from typing import Literal

from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from harness.core.reason import Reason
from harness.store.database import with_driver
from harness.store.inbox import InboxRow
from harness.store.letter import Letter
from harness.testing.expect import Error, Expect
from harness.testing.process import WorkerFailed, WorkerProcess
from harness.testing.rows import JobRows, look
from harness.testing.sent import Sent

__all__ = ["Worker", "WorkerFailed"]

Until = Literal["ended", "done", "dead", "deferred"]


class Worker(WorkerProcess):
    """`celery -A app worker` as a process of its own, with fail points. Also a context manager: starts, stops.

        with Worker("shop:app", folder, broker_url=…, database_url=…, service="shop") as worker:
            credit_points.apply_async(…, task_id="order-1")
            worker.wait("order-1")

    `app` is what stands behind `celery -A`. `folder` (a new one) keeps its log and its fail points. `longest_wait` caps
    the delay of every retry, in seconds; None leaves them as the policies draw them. `settings` are put into the app's
    configuration (JSON values), `options` into the command line, `environment` into the environment.
    It ends with this process, whatever becomes of that.
    """

    @cached_property
    def _engine(self) -> Engine:
        return create_engine(with_driver(self.database_url), poolclass=NullPool)

    def wait(self, job_id: str, until: Until = "ended", seconds: float = 30.0) -> JobRows:
        """Wait until every job of this id has ended (done or dead), or is `done`, `dead` or `deferred`; its rows.

        WorkerFailed after so many seconds, or at once where it is done and was to be dead or the reverse: with the rows
        that are there and the end of the log.
        """
        __tracebackhide__ = True
        seen: list[JobRows] = []

        def holds() -> bool:
            seen[:] = self._rows(job_id)
            ended = bool(seen) and all(one.ended for one in seen)
            states = {one.state for one in seen}
            if until == "deferred":
                return any(one.deferred for one in seen)
            if ended and until != "ended" and states != {until}:
                raise WorkerFailed(f"job {job_id!r} is not {until}.\n{_said(seen)}\n{self._tail()}")
            return ended

        try:
            self.until(holds, seconds, f"job {job_id!r} is {until}")
        except WorkerFailed as failed:
            raise WorkerFailed(f"{_said(seen)}\n{failed}") from None
        return next((one for one in seen if one.deferred), seen[0]) if until == "deferred" else seen[0]

    def wait_dead(self, job_id: str, *, reason: Reason | str | None = None, error: Error | None = None) -> Letter:
        """Wait until the job is dead; its letter, which must fit as `Jobs.assert_dead` says."""
        __tracebackhide__ = True
        self.wait(job_id, "dead")
        return _Committed(self._rows(job_id)).assert_dead(job_id=job_id, reason=reason, error=error)

    def wait_deferred(self, job_id: str, *, error: Error | None = None) -> InboxRow:
        """Wait until the job waits for another try; its row, which must fit as `Jobs.assert_deferred` says."""
        __tracebackhide__ = True
        found = self.wait(job_id, "deferred")
        return _Committed([found]).assert_deferred(job_id=job_id, error=error)

    def _rows(self, job_id: str) -> list[JobRows]:
        with Session(self._engine) as session:
            return look(session, self.schema, self.service, job_id=job_id)


class _Committed(Expect):
    def __init__(self, rows: list[JobRows]) -> None:
        self._rows = rows

    @property
    def sent(self) -> list[Sent]:
        return []

    def rows(self) -> list[JobRows]:
        return self._rows


def _said(rows: list[JobRows]) -> str:
    return "\n".join(str(one) for one in rows) or "There is no row of it in the tables."
