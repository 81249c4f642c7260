"""What a test's own transaction holds: what was sent in it, and what the tables know of its jobs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery
from sqlalchemy import Connection, func, select
from sqlalchemy.orm import Session

from harness.core.errors import UsageError
from harness.store.database import DatabaseAway
from harness.store.inbox import InboxRow
from harness.testing.borrowed import Borrowed
from harness.testing.expect import Expect
from harness.testing.rows import JobRows, is_enqueued, look
from harness.testing.sent import Sent, dispatched, sent_of
from harness.worker.harness import Harness

_ENDED = (
    "The test's transaction has ended: a commit() or rollback() of the code under test was a real one, or the "
    "connection is gone. Bind the session to a connection with join_transaction_mode='create_savepoint', as the "
    "fixture harness_session does."
)


class Watched(Expect):
    """The transaction of `bind`, in which the jobs of `app` are run."""

    def __init__(self, app: Celery | Harness, bind: Session | Connection) -> None:
        self.harness = app if isinstance(app, Harness) else Harness.of(app)
        self.app, self.bind = self.harness.app, bind
        self.database = Borrowed(bind)
        self.settings: Any = None
        self._caught: list[Sent] = []
        self._not_run: list[Sent] = []
        self._enqueued: dict[int, Sent] = {}
        self._began: Any = None

    def _take(self, sent: Sent) -> None:
        self._caught.append(sent)
        self._not_run.append(sent)

    @property
    def sent(self) -> list[Sent]:
        """All that was sent in this test, in order: messages, then what was written to the inbox and not rolled back.

        A job that `run` was called with is not in it.
        """
        for job in self.rows():
            if job.row is not None:
                self._note(job.row)
        return [*self._caught, *self._enqueued.values()]

    def rows(self) -> list[JobRows]:
        """What the tables know of the jobs that this test's transaction has touched."""
        with self._transaction() as session:
            return look(session, self.settings.schema_name, self.settings.service, mine=True)

    def _note(self, row: InboxRow) -> None:
        """Remember what a row was written for, before it runs and is gone."""
        if row.id not in self._enqueued and is_enqueued(row):
            self._enqueued[row.id] = sent_of(self.app, dispatched(self.app, row), "inbox")

    @contextmanager
    def _transaction(self) -> Iterator[Session]:
        if isinstance(self.bind, Session):
            self.bind.flush()
        try:
            with self.database.begin() as session:
                self._is_the_same(session.scalar(select(func.now())))
                yield session
        except DatabaseAway as error:
            raise UsageError(f"{_ENDED} ({error})") from None

    def _is_the_same(self, began: Any) -> None:
        """A commit that was a real one would leave rows behind, and split what belongs together."""
        self._began = self._began or began
        if began != self._began:
            raise UsageError(_ENDED)
