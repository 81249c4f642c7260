"""The relays are told of what was put in, after the commit and only then, on any kind of session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from harness.core.incoming import Incoming
from harness.relay.wake import WakeUp
from tests.enqueue.conftest import Shop

#: Seconds in which a hint that was sent is heard, on a loaded machine; and in which one that was not is not.
HEARD, NOT_HEARD = 30.0, 0.1


@pytest.fixture
def ear(shop: Shop) -> Iterator[WakeUp]:
    made = WakeUp(shop.harness.database, "core", "tests")
    assert made.listen()
    yield made
    made.close()


def test_after_the_commit_and_once(shop: Shop, ear: WakeUp) -> None:
    with shop.session() as session:
        for job_id in ("a", "b"):
            shop.harness.enqueue(session, shop.credit, job_id=job_id)
        assert not ear.wait(NOT_HEARD)
        session.commit()
        assert ear.wait(HEARD)
        session.commit()
        shop.harness.enqueue(session, shop.credit, job_id="a")
        session.commit()
        assert not ear.wait(NOT_HEARD), "nothing new was put in"
        shop.harness.enqueue(session, shop.credit, job_id="c")
        session.commit()
        assert ear.wait(HEARD)


def test_not_after_a_rollback_or_a_savepoint(shop: Shop, ear: WakeUp) -> None:
    with shop.session() as session:
        shop.harness.enqueue(session, shop.credit, job_id="a")
        session.rollback()
        assert not ear.wait(NOT_HEARD)
        with session.begin_nested():
            shop.harness.enqueue(session, shop.credit, job_id="b")
        assert not ear.wait(NOT_HEARD)
        session.commit()
        assert ear.wait(HEARD)


def test_not_while_an_outer_transaction_goes_on(shop: Shop, ear: WakeUp) -> None:
    """A test's session within a transaction that is rolled back at the end."""
    with shop.engine.connect() as connection:
        outer = connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            shop.harness.enqueue(session, shop.credit, job_id="a")
            session.commit()
            assert not ear.wait(NOT_HEARD)
        outer.rollback()
    assert shop.rows() == []


def test_of_a_scoped_session_and_of_many_at_once(shop: Shop, ear: WakeUp) -> None:
    registry = scoped_session(sessionmaker(shop.engine))
    shop.harness.enqueue_many(registry, [shop.credit.s(points=n) for n in (1, 2, 3)])
    registry.commit()
    assert ear.wait(HEARD)
    registry.remove()


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_of_an_async_session(shop: Shop, ear: WakeUp, driver: str) -> None:
    async def put() -> None:
        engine = create_async_engine(shop.url.set(drivername=f"postgresql+{driver}"))
        async with AsyncSession(engine) as session:
            await shop.harness.enqueue(session, shop.credit, job_id="a")
            await session.commit()
        await engine.dispose()

    asyncio.run(put())
    assert ear.wait(HEARD)


def test_a_connection_only_is_polled(shop: Shop, ear: WakeUp) -> None:
    with shop.engine.begin() as connection:
        shop.harness.enqueue(connection, shop.credit, job_id="a")
    assert not ear.wait(NOT_HEARD)


def test_switched_off(shop: Shop, ear: WakeUp, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = shop.harness.settings.model_copy(update={"notify": False})
    monkeypatch.setattr(shop.harness, "settings", silent)
    with shop.begin() as session:
        shop.harness.enqueue(session, shop.credit, job_id="a")
    assert not ear.wait(NOT_HEARD)


def test_a_hint_that_fails_changes_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("harness.enqueue.hint._notify", fail)
    with shop.session() as session:
        shop.harness.enqueue(session, shop.credit, job_id="a")
        session.commit()
        shop.harness.enqueue(session, shop.credit, job_id="b")
        session.commit()
    assert len(shop.rows()) == 2


def test_of_a_message_that_was_received(shop: Shop, ear: WakeUp) -> None:
    with shop.harness.database.begin() as session:
        shop.harness.receive(session, shop.credit, Incoming(id="m-1", arguments={"points": 5}))
        assert not ear.wait(NOT_HEARD)
    assert ear.wait(HEARD)
    with shop.harness.database.begin() as session:
        shop.harness.receive(session, shop.credit, Incoming(id="m-1", arguments={"points": 5}))
    assert not ear.wait(NOT_HEARD), "it was there already"
