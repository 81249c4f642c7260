"""What an enqueue writes, refuses and answers; any driver, any kind of session."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery, chain, signals
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from harness import ConflictingJob, Enqueued, InvalidPayload, UsageError
from harness.core.ids import uuid7_time
from harness.store import codec
from harness.store.processed_jobs import FenceState, Key
from harness.worker.relaying import relay_of
from tests.enqueue.conftest import Shop
from tests.publishing import in_turn

DRIVERS = ["asyncpg", "psycopg"]


def headers(row: Any) -> dict[str, Any]:
    return codec.loads(bytes(row.headers))


def test_the_row_is_what_delay_would_have_sent(shop: Shop) -> None:
    """The same bytes and headers as Celery's own producer makes, but for what differs from call to call."""
    sent: list[tuple[Any, dict[str, Any], dict[str, Any]]] = []

    def keep(body: Any, headers: dict[str, Any], properties: dict[str, Any], **_: Any) -> None:
        sent.append((body, dict(headers), dict(properties)))

    signals.before_task_publish.connect(keep)
    try:
        shop.credit.apply_async(kwargs={"points": 3}, task_id="order-1", priority=4)
        with shop.begin() as session:
            answer = shop.harness.enqueue(session, shop.credit.s(points=3), job_id="order-1", priority=4)
    finally:
        signals.before_task_publish.disconnect(keep)
    assert answer == Enqueued("order-1")
    assert answer.is_new
    [row] = shop.rows()
    first, second = sent
    assert first[0] == second[0]
    changing = ("harness_sent_at",)
    assert {k: v for k, v in headers(row).items() if k not in changing} == {
        k: v for k, v in json.loads(json.dumps(first[1])).items() if k not in changing
    }
    assert json.loads(bytes(row.body)) == json.loads(json.dumps(first[0]))
    stored = codec.loads(bytes(row.properties))
    assert (stored["correlation_id"], stored["priority"]) == ("order-1", 4)
    assert (row.service, row.consumer, row.task, row.queue) == ("tests", "tests/credit", "credit", "jobs")
    assert (row.content_type, row.content_encoding) == ("application/json", "utf-8")
    assert (row.priority, row.generation, row.attempts, row.dispatches) == (4, 0, 0, 0)
    assert shop.state.fence("order-1") is None


def test_options_and_the_databases_clock(shop: Shop) -> None:
    when = datetime.now(UTC) + timedelta(days=2)
    with shop.begin() as session:
        made = shop.harness.enqueue(session, shop.credit, points=2)
        shop.harness.enqueue(session, shop.credit.s(), job_id="delay", delay=timedelta(minutes=2), tenant="acme")
        shop.harness.enqueue(session, shop.credit.s(), job_id="eta", eta=when, expires=when + timedelta(1))
        shop.harness.enqueue(session, shop.credit.s(), job_id="key", ordering_key="account 7")
        shop.harness.enqueue(session, shop.credit.s(), job_id="key2", ordering_key="account 7")
        signed = shop.credit.s().set(task_id="signed", countdown=60, priority=3, queue="other", headers={"x": "1"})
        shop.harness.enqueue(session, signed)
        shop.harness.enqueue(session, signed, job_id="signed2", eta=when)
    rows = {row.job_id: row for row in shop.rows()}
    assert uuid7_time(made.job_id) is not None
    assert (
        timedelta(minutes=1, seconds=50) < rows["delay"].available_at - rows["delay"].created_at < timedelta(minutes=4)
    )
    assert (rows["delay"].tenant, headers(rows["delay"])["harness_tenant"]) == ("acme", "acme")
    assert rows["eta"].available_at == when
    assert headers(rows["eta"])["eta"] is None
    assert datetime.fromisoformat(headers(rows["eta"])["expires"]) == rows["eta"].expires_at == when + timedelta(1)
    assert rows["key"].ordering_key == "account 7"
    assert rows["key"].sequence < rows["key2"].sequence
    signed_row = rows["signed"]
    assert (signed_row.priority, signed_row.queue, headers(signed_row)["x"]) == (3, "other", "1")
    assert signed_row.available_at > signed_row.created_at + timedelta(seconds=50)
    assert rows["signed2"].available_at == when


def test_routes_are_honoured(database: str) -> None:
    shop = Shop(database, task_routes={"credit": {"queue": "routed"}, "echo": {"exchange": "ex", "routing_key": "k"}})
    try:
        with shop.begin() as session:
            shop.harness.enqueue(session, shop.credit.s())
            shop.harness.enqueue(session, shop.slow.s(pause=1.0))
        assert [row.queue for row in shop.rows()] == ["routed", "jobs"]
    finally:
        shop.close()


@pytest.mark.parametrize(
    ("refused", "error", "words"),
    [
        (lambda h, s, j: h.enqueue(s, j.credit, points="many"), InvalidPayload, "points"),
        (lambda h, s, j: h.enqueue(s, j.credit.s(nothing=1)), InvalidPayload, "nothing"),
        (lambda h, s, j: h.enqueue(s, j.credit.s(), job_id=""), UsageError, "job_id"),
        (lambda h, s, j: h.enqueue(s, j.credit.s(), job_id="a\nb"), UsageError, "job_id"),
        (lambda h, s, j: h.enqueue(s, j.credit.s(), job_id="x" * 256), UsageError, "job_id"),
        (lambda h, s, j: h.enqueue(s, j.credit.s(), delay=1, eta=datetime.now(UTC)), UsageError, "Give one"),
        (lambda h, s, j: h.enqueue(s, j.credit.s(), eta=datetime(2030, 1, 1)), UsageError, "time zone"),
        (lambda h, s, j: h.enqueue(s, j.credit.s(), expires=datetime(2030, 1, 1)), UsageError, "time zone"),
        (lambda h, s, j: h.enqueue(s, j.credit.s(), delay=-1), UsageError, "0 or more"),
        (lambda h, s, j: h.enqueue(s, j.credit.s(), delay=float("nan")), UsageError, "number of seconds"),
        (lambda h, s, j: h.enqueue(s, j.credit.s(), delay=1e12), UsageError, "hundred years"),
        (lambda h, s, j: h.enqueue(s, j.credit.s(), priority=256), UsageError, "0 to 255"),
        (lambda h, s, j: h.enqueue(s, j.credit.s(), priority=True), UsageError, "0 to 255"),
        (lambda h, s, j: h.enqueue(s, j.credit.s(), tenant=""), UsageError, "tenant"),
        (lambda h, s, j: h.enqueue(s, j.credit.s(), ordering_key="\x00"), UsageError, "ordering_key"),
        (lambda h, s, j: h.enqueue(s, j.credit.s(), points=1), UsageError, "signature"),
        (lambda h, s, j: h.enqueue(s, chain(j.credit.s(), j.credit.s())), UsageError, "one job"),
        (lambda h, s, j: h.enqueue(s, j.plain.s()), UsageError, "no job"),
        (lambda h, s, j: h.enqueue(s, j.plain), UsageError, "no job"),
        (lambda h, s, j: h.enqueue(s, "credit"), UsageError, "the name of a job"),
        (lambda h, s, j: h.enqueue(s, j.clash, tenant="a"), UsageError, "Say which is which"),
        (lambda h, s, j: h.enqueue(s, j.credit.s().set(chord="x")), UsageError, "chord"),
        (lambda h, s, j: h.enqueue(s, j.credit.s().set(exchange="x")), UsageError, "exchange"),
        (lambda h, s, j: h.enqueue("session", j.credit.s()), UsageError, "SQL"),
        (lambda h, s, j: h.enqueue_many(s, [j.credit.s(), j.credit]), UsageError, "no signature"),
        (lambda h, s, j: h.enqueue_many(s, [j.credit.s(), j.credit.s(points=0)]), InvalidPayload, "points"),
        (lambda h, s, j: h.enqueue(s, j.echo.s(x=object())), Exception, "serializable"),
    ],
)
def test_what_is_refused_writes_nothing(
    shop: Shop, refused: Callable[[Any, Any, Any], Any], error: type[Exception], words: str
) -> None:
    @shop.app.task(name="plain", shared=False)
    def plain() -> None: ...

    @shop.harness.job(name="clash", shared=False)
    def clash(session: Session, tenant: str) -> None: ...

    shop.plain, shop.clash = plain, clash  # type: ignore[attr-defined]
    with shop.begin() as session, pytest.raises(error, match=words):
        refused(shop.harness, session, shop)
    assert shop.rows() == []


def test_the_same_said_otherwise_is_the_same_job(shop: Shop) -> None:
    """By position or by name, with a default written out; no other values."""
    enqueue, credit = shop.harness.enqueue, shop.credit
    ways = [credit.s(points=4), credit.s(4), credit.s(4, 0.0), credit.s(4, pause=0.0), credit.s(pause=0.0, points=4)]
    for n, first in enumerate(ways):
        with shop.begin() as session:
            assert enqueue(session, first, job_id=f"way {n}").is_new
            assert [enqueue(session, way, job_id=f"way {n}").state for way in ways] == ["waiting"] * len(ways)
            for other in (credit.s(5), credit.s(4, 1.0), credit.s(pause=4.0)):
                with pytest.raises(ConflictingJob):
                    enqueue(session, other, job_id=f"way {n}")
    with shop.begin() as session:
        answers = shop.harness.enqueue_many(session, [way.set(task_id="many") for way in ways])
        assert [answer.is_new for answer in answers].count(True) == len(ways)  # as for one call that stands there twice
    assert len(shop.rows()) == len(ways) + 1


def test_the_same_id_again(shop: Shop) -> None:
    enqueue, credit = shop.harness.enqueue, shop.credit
    with shop.begin() as session:
        assert enqueue(session, credit.s(points=1), job_id="a").state == "enqueued"
        assert enqueue(session, credit.s(points=1), job_id="a").state == "waiting"
        with pytest.raises(ConflictingJob, match="other arguments"):
            enqueue(session, credit.s(points=2), job_id="a")
        # The same id for another job is another key.
        assert enqueue(session, shop.echo.s(points=2), job_id="a").is_new
    for state in (FenceState.DONE, FenceState.DEAD):
        store, key = shop.harness.store, Key(f"fenced {state}", "tests/credit")
        with shop.harness.database.begin() as own:
            assert store.fence.take(own, key, state, relayed=False, digest=bytes(shop.rows()[0].digest))
        with shop.begin() as session:
            assert enqueue(session, credit.s(points=1), job_id=key.job_id).state == state
            with pytest.raises(ConflictingJob):
                enqueue(session, credit.s(points=2), job_id=key.job_id)
    assert len(shop.rows()) == 2


def test_many_in_one_statement(shop: Shop) -> None:
    calls = [shop.credit.s(points=n + 1).set(task_id=f"many {n:05}") for n in range(9_998)]
    statements: list[str] = []
    event.listen(shop.engine, "after_cursor_execute", lambda c, cur, sql, *_: statements.append(sql))
    with shop.begin() as session:
        shop.harness.enqueue(session, calls[5])
    statements.clear()
    with shop.begin() as session:
        began = time.process_time()
        answers = shop.harness.enqueue_many(session, [*calls, shop.credit.s(), calls[7]])
        seconds = time.process_time() - began
    print(f"10,000 rows: {seconds:.1f} s of this process")
    assert seconds < 30  # of the processor: the machine may be busy with other things
    # One statement puts all in; the one that was there before is looked at.
    assert [sql.split()[0] for sql in statements] == ["WITH", "SELECT"]
    assert [answer.job_id for answer in answers[:-2]] == [f"many {n:05}" for n in range(9_998)]
    assert [n for n, answer in enumerate(answers) if not answer.is_new] == [5]
    assert len(shop.rows()) == 9_999
    with shop.begin() as session:
        assert shop.harness.enqueue_many(session, []) == []
    with shop.begin() as session, pytest.raises(ConflictingJob, match="in the same call"):
        shop.harness.enqueue_many(session, [calls[0], shop.credit.s(points=7).set(task_id="many 00000")])


def test_connection_and_scoped_session(shop: Shop) -> None:
    with shop.engine.begin() as connection:
        shop.harness.enqueue(connection, shop.credit.s(), job_id="connection")
    scoped = scoped_session(sessionmaker(shop.engine))
    shop.harness.enqueue(scoped, shop.credit.s(), job_id="scoped")
    scoped.commit()
    scoped.remove()
    assert [row.job_id for row in shop.rows()] == ["connection", "scoped"]


@pytest.mark.parametrize("driver", DRIVERS)
def test_async_sessions_of_other_drivers(shop: Shop, driver: str) -> None:
    async def run() -> None:
        engine = create_async_engine(shop.url.set(drivername=f"postgresql+{driver}"))
        enqueue, credit = shop.harness.enqueue, shop.credit
        async with AsyncSession(engine) as session, session.begin():
            assert (await enqueue(session, credit.s(points=3), job_id="a", delay=5, expires=60, priority=2)).is_new
            assert (await enqueue(session, credit, job_id="a", points=3)).state == "waiting"
        async with engine.begin() as connection:
            assert len(await shop.harness.enqueue_many(connection, [credit.s() for _ in range(50)])) == 50
            with pytest.raises(ConflictingJob):
                await enqueue(connection, credit.s(points=4), job_id="a")
        async with AsyncSession(engine) as session:
            await enqueue(session, credit.s(), job_id="rolled back")
            await session.rollback()
        await engine.dispose()

    asyncio.run(run())
    rows = shop.rows()
    assert len(rows) == 51
    assert {row.job_id for row in rows} >= {"a"}
    assert "rolled back" not in {row.job_id for row in rows}
    assert bytes(rows[0].body).startswith(b'[[], {"points": 3}')


def test_two_transactions_at_once(shop: Shop) -> None:
    """The second waits for the first, and then finds the job, or puts it in itself."""
    for ends, expected in (("commit", "waiting"), ("rollback", "enqueued")):
        first = shop.session()
        shop.harness.enqueue(first, shop.credit.s(points=1), job_id=ends)
        answers: list[Enqueued] = []

        def second(job_id: str = ends, answers: list[Enqueued] = answers) -> None:
            with shop.begin() as session:
                answers.append(shop.harness.enqueue(session, shop.credit.s(points=1), job_id=job_id))

        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
        assert answers == []
        getattr(first, ends)()
        first.close()
        thread.join(30)
        assert [answer.state for answer in answers] == [expected]
    assert sorted(row.job_id for row in shop.rows()) == ["commit", "rollback"]


def test_the_relay_sends_the_urgent_first(shop: Shop) -> None:
    """By priority, each class oldest first, whatever the backlog; what is not due waits whatever its priority."""
    with shop.begin() as session:
        for n, priority in enumerate([0, 5, 9, 0, 200, 5, 1]):
            shop.harness.enqueue(session, shop.credit.s(), job_id=f"{n}", priority=priority)
        shop.harness.enqueue(session, shop.credit.s(), job_id="later", priority=9, delay=100)
    relay = relay_of(shop.harness)
    sent: list[str] = []
    relay.publish, relay.batch = in_turn(lambda row: sent.append(row.job_id)), 2
    assert relay.highest_first
    while relay.step():
        pass
    assert sent == ["2", "4", "1", "5", "6", "0", "3"]
    shop.state.sql("UPDATE core.inbox SET leased_until = NULL, dispatches = 0")
    sent.clear()
    relay.highest_first = False  # as kombu's Redis transport has it
    while relay.step():
        pass
    assert sent == ["0", "3", "6", "1", "5", "2", "4"]


def test_a_worker_with_a_redis_protocol_broker_serves_0_first(database: str) -> None:
    shop = Shop(database)
    shop.app.conf.broker_url = "redis://127.0.0.1:1/0"
    try:
        assert not relay_of(shop.harness).highest_first
    finally:
        shop.close()


SQL = "SELECT * FROM core.enqueue('tests', 'credit', 'jobs'"


def test_the_sql_function(shop: Shop) -> None:
    run = shop.state.sql
    [(made, state)] = run(SQL + ")")
    assert state == "enqueued"
    assert uuid7_time(made) is not None
    assert abs((uuid7_time(made) or datetime.now(UTC)) - datetime.now(UTC)) < timedelta(minutes=5)
    call = (
        SQL
        + """, kwargs => '{"points": 4}', job_id => 'a', priority => 3, tenant => 't', ordering_key => 'k',
        delay => '1 hour', expires => now() + '2 hours', correlation_id => 'c')"""
    )
    assert run(call) == [("a", "enqueued")]
    assert run(call) == [("a", "waiting")]
    [_, row] = shop.rows()
    assert json.loads(bytes(row.body))[:2] == [[], {"points": 4}]
    assert (row.priority, row.tenant, row.ordering_key, row.correlation_id) == (3, "t", "k", "c")
    assert row.sequence is not None
    assert row.available_at > row.created_at + timedelta(minutes=50)
    assert datetime.fromisoformat(headers(row)["expires"]) == row.expires_at
    with shop.begin() as session:
        # Python and SQL know each other's jobs by their arguments.
        assert shop.harness.enqueue(session, shop.credit.s(points=4), job_id="a").state == "waiting"
        assert shop.harness.enqueue(session, shop.credit.s(points=5), job_id="b").is_new
        with pytest.raises(ConflictingJob):
            shop.harness.enqueue(session, shop.credit.s(points=5), job_id="a")
    assert run(SQL + """, kwargs => '{  "points": 5 }', job_id => 'b')""") == [("b", "waiting")]
    with shop.harness.database.begin() as own:
        shop.harness.store.fence.take(own, Key("d", "tests/credit"), FenceState.DONE, relayed=False)
    assert run(SQL + ", job_id => 'd')") == [("d", "done")]


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        (", job_id => '')", "job_id"),
        (", args => '{}')", "JSON array"),
        (", kwargs => '[]')", "JSON array"),
        (", kwargs => NULL)", "JSON array"),
        (", kwargs => '{')", "json"),
        (", priority => 300)", "priority"),
        (", delay => '1s', eta => now())", "give one"),
        (""", kwargs => '{"points": 2}', job_id => 'taken')""", "other arguments"),
        (""", kwargs => '{"points": "\\u0000"}', job_id => 'taken')""", "other arguments"),
    ],
)
def test_the_sql_function_refuses(shop: Shop, rest: str, words: str) -> None:
    with shop.begin() as session:
        shop.harness.enqueue(session, shop.credit.s(points=1), job_id="taken")
    with shop.engine.begin() as connection, pytest.raises(DBAPIError, match=words):
        connection.exec_driver_sql((SQL + rest).replace("%", "%%"))
    assert len(shop.rows()) == 1


def test_plain_psycopg2_and_a_poor_role(shop: Shop) -> None:
    """What a role of another program needs is what the page says."""
    import psycopg2

    role = f"shop_{shop.url.database}"
    run = shop.state.sql
    run(f"CREATE ROLE {role} LOGIN PASSWORD 'poor'")
    try:
        for grant in (
            "USAGE ON SCHEMA core",
            "SELECT, INSERT ON core.inbox",
            "SELECT ON core.processed_jobs",
            "USAGE ON SEQUENCE core.inbox_generation",
        ):
            run(f"GRANT {grant} TO {role}")
        dsn = shop.url.set(username=role, password="poor", drivername="postgresql")
        connection = psycopg2.connect(dsn.render_as_string(hide_password=False))
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(SQL + ", kwargs => %s, job_id => %s, ordering_key => 'k')", ('{"points": 3}', "poor"))
                assert cursor.fetchone() == ("poor", "enqueued")
        finally:
            connection.close()
        assert [row.job_id for row in shop.rows()] == ["poor"]
    finally:
        run(f"DROP OWNED BY {role}")
        run(f"DROP ROLE {role}")


def test_a_second_app_cannot_enqueue_the_firsts_jobs(shop: Shop, database: str) -> None:
    from harness import Harness

    other = Harness(Celery("other", broker="memory://", set_as_current=False), database_url=database)
    with shop.begin() as session, pytest.raises(UsageError, match="no job of this app"):
        other.enqueue(session, shop.credit, points=1)
    assert session.execute(text("SELECT 1")).scalar() == 1
