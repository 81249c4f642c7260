"""Executes the steps of an enqueue in the caller's transaction, on whatever kind of connection the caller has."""

import inspect
from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from sqlalchemy import Connection
from sqlalchemy.orm import Session, scoped_session

from harness.core.errors import UsageError
from harness.enqueue import Enqueued
from harness.enqueue.hint import after_commit
from harness.store.enqueueing import Statement

if TYPE_CHECKING:
    from harness.worker.harness import Harness

T = TypeVar("T")


def is_async(session: Any) -> bool:
    """Is the connection an asynchronous one? UsageError for what is none at all."""
    execute = getattr(session, "execute", None)
    if execute is None:
        _refuse(session)
    return inspect.iscoroutinefunction(execute)


def run_steps(harness: "Harness", session: Any, steps: Generator[Statement, Any, list[T]]) -> list[T]:
    """Execute the steps in the caller's transaction."""
    rows: Any = None
    while True:
        try:
            wanted: Statement = steps.send(rows)
        except StopIteration as end:
            owner = session.registry() if isinstance(session, scoped_session) else session
            if isinstance(owner, Session) and _tells(harness, end.value):
                _tell(harness, owner, owner.connection())
            return list(end.value)
        rows = session.execute(wanted.sql, wanted.values).all()


async def run_async(harness: "Harness", session: Any, steps: Generator[Statement, Any, list[T]]) -> list[T]:
    """The same on an asynchronous connection."""
    rows: Any = None
    while True:
        try:
            wanted: Statement = steps.send(rows)
        except StopIteration as end:
            owner = getattr(session, "sync_session", None)
            if isinstance(owner, Session) and _tells(harness, end.value):
                _tell(harness, owner, (await session.connection()).sync_connection)
            return list(end.value)
        rows = (await session.execute(wanted.sql, wanted.values)).all()


def _tells(harness: "Harness", answers: list[Any]) -> bool:
    return harness.settings.notify and any(answer.is_new for answer in answers)


def _tell(harness: "Harness", session: Session, connection: Connection) -> None:
    after_commit(session, connection, harness.store.wake.channel, harness.settings.service)


async def first(answers: Awaitable[list[Enqueued]]) -> Enqueued:
    """The one answer of a single enqueue."""
    return (await answers)[0]


def _refuse(session: Any) -> NoReturn:
    raise UsageError(
        f"{session!r} cannot execute SQL. Pass the Session, Connection, AsyncSession or AsyncConnection of your "
        "transaction."
    )
