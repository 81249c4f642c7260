"""A producer whose tables are not there, not for its role, or that has another database system: told, not quoted."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from harness import UsageError
from harness.core.errors import ConfigError, TablesUnusable
from tests.enqueue.conftest import Shop

SECRET = "4111-1111-1111-1111"


@pytest.fixture
def shop(database: str) -> Iterator[Shop]:
    made = Shop(database)
    yield made
    made.engine.dispose()
    made.harness.close()


def told(raised: pytest.ExceptionInfo[TablesUnusable]) -> str:
    """What it says; nothing of it, nor of what caused it, quotes the arguments or a password."""
    whole = "".join(traceback.format_exception(raised.value))
    assert "UndefinedTable" in whole or "InvalidSchema" in whole or "permission denied" in whole or "hidden" in whole
    assert "SQL parameters hidden" in whole
    assert "NDExMS" not in whole, "the arguments stand there as base64"
    return str(raised.value)


@pytest.mark.parametrize("schema", ["core_of_nobody"])
def test_tables_that_are_not_there(shop: Shop, schema: str) -> None:
    shop.harness.__dict__.pop("store", None)
    with shop.begin() as session:
        session.execute(text("DROP SCHEMA core CASCADE"))
    for kind in (Session, scoped_session):
        made: Any = Session(shop.engine) if kind is Session else scoped_session(sessionmaker(shop.engine))
        with pytest.raises(TablesUnusable) as raised:
            shop.harness.enqueue(made, shop.echo, card=SECRET)
        assert "harness migrate. Nothing was enqueued." in told(raised)
        assert f"schema 'core' of postgresql+psycopg2://{shop.url.username}" in str(raised.value)
        made.rollback()
        made.close()
    with shop.engine.connect() as connection, pytest.raises(TablesUnusable, match="harness migrate"):
        shop.harness.enqueue(connection, shop.echo, card=SECRET)
    assert isinstance(raised.value, ConfigError)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_so_it_is_on_an_asynchronous_session(shop: Shop, driver: str) -> None:
    with shop.begin() as session:
        session.execute(text("DROP TABLE core.inbox CASCADE"))

    async def run() -> None:
        engine = create_async_engine(shop.url.set(drivername=f"postgresql+{driver}"))
        async with AsyncSession(engine) as session:
            with pytest.raises(TablesUnusable, match="harness migrate") as raised:
                await shop.harness.enqueue(session, shop.echo.s(card=SECRET))
            told(raised)
        await engine.dispose()

    asyncio.run(run())


def test_a_role_without_rights(shop: Shop) -> None:
    with shop.begin() as session:
        session.execute(text("DROP ROLE IF EXISTS unusable_test"))
        session.execute(text("CREATE ROLE unusable_test"))
    try:
        with Session(shop.engine) as session:
            session.execute(text("SET LOCAL ROLE unusable_test"))
            with pytest.raises(TablesUnusable, match=r"permission denied .* harness migrate --grants ROLE") as raised:
                shop.harness.enqueue(session, shop.echo, card=SECRET)
            told(raised)
    finally:
        with shop.begin() as session:
            session.execute(text("DROP ROLE unusable_test"))


def test_an_error_of_the_callers_own_objects_is_the_callers(shop: Shop) -> None:
    class Base(DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "no_such_table"
        id: Mapped[int] = mapped_column(primary_key=True)

    with Session(shop.engine) as session:
        session.add(Order(id=1))
        with pytest.raises(ProgrammingError, match="no_such_table") as raised:
            shop.harness.enqueue(session, shop.echo, card=SECRET)
    assert not raised.value.hide_parameters


def test_another_database_system(shop: Shop) -> None:
    engine = create_engine("sqlite://")
    for make in (lambda: Session(engine), lambda: scoped_session(sessionmaker(engine)), engine.connect):
        made: Any = make()
        with pytest.raises(UsageError, match="The session is one of sqlite"):
            shop.harness.enqueue(made, shop.echo, card=SECRET)
        made.close()
    engine.dispose()
    assert make_url(shop.state_url).get_backend_name() == "postgresql"
