"""A handler that swallows the error of a statement: what it swallowed is said, at once and not after 5 tries."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg2
import pytest
from celery import Celery
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from harness import Harness, Job
from harness.core.errors import TransactionRefused


class Base(DeclarativeBase):
    """Of this file alone."""


class Effect(Base):
    """A row that may be there once."""

    __tablename__ = "effects"
    n: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def run(database: str) -> Iterator[Callable[..., Any]]:
    app = Celery("swallowed", broker="memory://", set_as_current=False)
    harness = Harness(app, service="swallowed", database_url=database)
    with harness.database.begin() as session:
        session.execute(text("CREATE TABLE effects (n int PRIMARY KEY)"))

    def run(handler: Callable[[Session], None]) -> None:
        def named(session: Session, job: Job) -> None:
            handler(session)

        harness.job(name=handler.__name__, shared=False)(named).apply(throw=True)

    yield run
    with harness.database.begin() as session:
        assert session.scalar(text("SELECT count(*) FROM effects")) == 0
    harness.close()
    app.close()


def ignore(session: Session, statement: str) -> None:
    try:
        session.execute(text(statement))
    except DBAPIError:
        pass


def goes_on(session: Session) -> None:
    ignore(session, "SELECT 1/0")
    session.execute(text("INSERT INTO effects VALUES (1)"))


def goes_on_twice(session: Session) -> None:
    ignore(session, "SELECT 1/0")
    ignore(session, "SELECT 2")
    session.execute(text("INSERT INTO effects VALUES (1)"))


def writes_it_down(session: Session) -> None:
    try:
        session.execute(text("SELECT 1/0"))
    except DBAPIError:
        session.execute(text("INSERT INTO effects VALUES (1)"))


def below_sqlalchemy(session: Session) -> None:
    ignore(session, "SELECT 1/0")
    with session.connection().connection.cursor() as cursor:
        cursor.execute("INSERT INTO effects VALUES (1)")


def after_a_savepoint(session: Session) -> None:
    with pytest.raises(DBAPIError), session.begin_nested():
        session.execute(text("SELECT no_such_column"))
    goes_on(session)


def in_bulk(session: Session) -> None:
    with session.connection().connection.cursor() as cursor:
        try:
            cursor.executemany("SELECT 1/%s", [(1,), (0,)])
        except psycopg2.Error:
            pass
    session.execute(text("INSERT INTO effects VALUES (1)"))


@pytest.mark.parametrize(
    "handler", [goes_on, goes_on_twice, writes_it_down, below_sqlalchemy, after_a_savepoint, in_bulk]
)
def test_what_was_swallowed_is_said(run: Callable[..., Any], handler: Callable[[Session], None]) -> None:
    with pytest.raises(TransactionRefused, match=r"begin_nested\(\):`. What it swallowed: DivisionByZero: division by"):
        run(handler)


def test_a_flush_that_failed(run: Callable[..., Any]) -> None:
    def flushes(session: Session) -> None:
        session.add(Effect(n=1))
        session.flush()
        session.expunge_all()
        session.add(Effect(n=1))
        try:
            session.flush()
        except DBAPIError:
            pass
        session.execute(text("SELECT 1"))

    with pytest.raises(TransactionRefused, match="the handler went on"):
        run(flushes)


def test_a_deadlock_that_was_swallowed_is_tried_again(run: Callable[..., Any]) -> None:
    tries = []

    def deadlock(session: Session) -> None:
        tries.append(1)
        ignore(session, "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40P01'; END $$")
        session.execute(text("SELECT 1"))

    with pytest.raises(DBAPIError, match="current transaction is aborted"):
        run(deadlock)


def test_to_begin_a_transaction_is_refused_and_a_savepoint_is_not(run: Callable[..., Any]) -> None:
    def begins(session: Session) -> None:
        session.execute(text("INSERT INTO effects VALUES (1)"))
        with session.begin():
            session.execute(text("INSERT INTO effects VALUES (2)"))

    def saves(session: Session) -> None:
        with session.begin_nested(), session.begin(nested=True):
            session.execute(text("INSERT INTO effects VALUES (1)"))
        session.execute(text("DELETE FROM effects"))

    with pytest.raises(TransactionRefused, match=r"may not begin a transaction.*use `with session.begin_nested"):
        run(begins)
    run(saves)
