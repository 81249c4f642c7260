"""`JobTask` without a worker: direct calls, `apply()`, eager mode, `task_cls`, what is refused."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery, Task
from pydantic import BaseModel, PositiveInt
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from harness import DualWrite, Harness, Job, JobTask, RetryLater
from harness.core.errors import InvalidPayload, SignatureError, TransactionRefused, UsageError


@pytest.fixture
def app(database: str) -> Iterator[Celery]:
    made = Celery("base", broker="memory://", backend="cache+memory://", set_as_current=False)
    made.conf.update(task_store_eager_result=True)
    harness = Harness(made, service="base", database_url=database)
    with harness.database.begin() as session:
        session.execute(text("CREATE TABLE effects (job_id text, n int)"))
    yield made
    harness.close()


@pytest.fixture
def credit(app: Celery) -> Any:
    @Harness.of(app).job(name="credit", shared=False)
    def credit(session: Session, job: Job, n: PositiveInt, boom: bool = False) -> int:
        session.execute(text("INSERT INTO effects VALUES (:id, :n)"), {"id": job.id, "n": n})
        if boom:
            raise ValueError("boom")
        return n * 2

    return credit


@pytest.fixture
def rows(app: Celery) -> Callable[[str], list[Any]]:
    def rows(table: str) -> list[Any]:
        with Harness.of(app).database.begin() as session:
            return list(session.execute(text(f"SELECT * FROM {table}")))

    return rows


def test_a_direct_call_is_the_plain_function(app: Celery) -> None:
    @Harness.of(app).job(name="plain", shared=False)
    def plain(session: Session, n: int) -> tuple[object, int]:
        return session, n

    mine = object()
    assert plain(mine, n=3) == (mine, 3)


def test_apply_runs_the_work_transaction_once(credit: Any, rows: Callable[[str], list[Any]]) -> None:
    assert credit.apply(kwargs={"n": 2}, task_id="one").get() == 4
    assert credit.apply(kwargs={"n": 2}, task_id="one").get() is None
    assert [tuple(row) for row in rows("effects")] == [("one", 2)]
    assert len(rows("core.processed_jobs")) == 1


def test_apply_raises_what_fails_and_leaves_nothing(credit: Any, rows: Callable[[str], list[Any]]) -> None:
    with pytest.raises(ValueError, match="boom"):
        credit.apply(kwargs={"n": 2, "boom": True}, throw=True)
    with pytest.raises(InvalidPayload, match="n"):
        credit.apply(kwargs={"n": "many"}, throw=True)
    assert credit.apply(kwargs={"n": 0}).state == "FAILURE"
    for table in ("effects", "core.processed_jobs", "core.inbox", "core.dead_letters"):
        assert rows(table) == []


def test_always_eager(app: Celery, credit: Any, rows: Callable[[str], list[Any]]) -> None:
    app.conf.task_always_eager = True
    assert credit.delay(n=5).get() == 10
    assert len(rows("effects")) == 1


def test_positional_and_keyword_arguments_and_models(app: Celery) -> None:
    class Order(BaseModel):
        id: int

    @Harness.of(app).job(name="order", shared=False)
    def order(a: int, session: Session, b: Order, c: str = "c") -> list[Any]:
        assert isinstance(b, Order)
        return [a, b.id, c]

    assert order.apply(args=["1", {"id": "2"}]).get() == [1, 2, "c"]
    assert order.apply(args=[1], kwargs={"b": {"id": 2}, "c": "x"}).get() == [1, 2, "x"]


def test_a_handler_may_take_nothing(app: Celery) -> None:
    @Harness.of(app).job(name="nothing", shared=False)
    def nothing() -> str:
        return "done"

    assert nothing.apply().get() == "done"


def test_the_session_refuses_to_end_the_transaction(app: Celery, rows: Callable[[str], list[Any]]) -> None:
    def commit(session: Session) -> None:
        session.commit()

    def rollback(session: Session) -> None:
        session.rollback()

    def close(session: Session) -> None:
        session.close()

    def statement(session: Session) -> None:
        session.execute(text("  COMMIT"))

    def connection(session: Session) -> None:
        session.connection().commit()

    def swallowed(session: Session) -> None:
        session.execute(text("INSERT INTO effects VALUES ('x', 1)"))
        with pytest.raises(Exception, match="division"):
            session.execute(text("SELECT 1/0"))

    def reset(session: Session) -> None:
        session.execute(text("INSERT INTO effects VALUES ('x', 1)"))
        session.reset()

    def invalidate(session: Session) -> None:
        session.invalidate()

    def behind_a_comment(session: Session) -> None:
        session.execute(text("/* x */ ROLLBACK AND CHAIN"))

    def among_others(session: Session) -> None:
        session.execute(text("SELECT 1; COMMIT; BEGIN"))

    def base_class(session: Session) -> None:
        Session.rollback(session)
        session.execute(text("INSERT INTO effects VALUES ('x', 1)"))

    def transaction(session: Session) -> None:
        session.get_transaction().rollback()  # type: ignore[union-attr]
        session.execute(text("INSERT INTO effects VALUES ('x', 1)"))

    def driver_commit(session: Session) -> None:
        session.execute(text("INSERT INTO effects VALUES ('x', 1)"))
        session.connection().connection.dbapi_connection.commit()  # type: ignore[union-attr]

    def driver_statement(session: Session) -> None:
        session.connection().connection.cursor().execute("COMMIT")

    def driver_rollback(session: Session) -> None:
        session.connection().connection.dbapi_connection.rollback()  # type: ignore[union-attr]
        session.execute(text("INSERT INTO effects VALUES ('x', 1)"))

    handlers = (commit, rollback, close, statement, connection, swallowed, reset, invalidate, behind_a_comment)
    handlers += (among_others, base_class, transaction, driver_commit, driver_statement, driver_rollback)
    for handler in handlers:
        job = Harness.of(app).job(name=handler.__name__, shared=False)(handler)
        with pytest.raises(TransactionRefused):
            job.apply(throw=True)
        assert rows("effects") == [], handler.__name__
        assert rows("core.processed_jobs") == [], handler.__name__


def test_what_only_looks_like_the_end_of_a_transaction_is_fine(app: Celery, rows: Callable[[str], list[Any]]) -> None:
    @Harness.of(app).job(name="looks_like", shared=False)
    def looks_like(session: Session) -> None:
        session.execute(text("DO $$ BEGIN PERFORM 1; END $$"))
        session.execute(text("SELECT 1 AS commit, 'COMMIT'"))
        session.execute(text("SAVEPOINT a"))
        session.execute(text("ROLLBACK TO SAVEPOINT a"))
        session.execute(text("INSERT INTO effects VALUES ('kept', 1)"))

    looks_like.apply(throw=True)
    assert len(rows("effects")) == 1


def test_savepoints_are_fine(app: Celery, rows: Callable[[str], list[Any]]) -> None:
    @Harness.of(app).job(name="savepoint", shared=False)
    def savepoint(session: Session) -> None:
        session.execute(text("INSERT INTO effects VALUES ('kept', 1)"))
        with pytest.raises(DBAPIError, match="division"), session.begin_nested():
            session.execute(text("INSERT INTO effects SELECT 'undone', 1/0"))

    savepoint.apply(throw=True)
    assert [row.job_id for row in rows("effects")] == ["kept"]


def test_task_cls_makes_jobs_of_existing_tasks_but_not_of_celerys(database: str) -> None:
    app = Celery("cls", broker="memory://", task_cls=JobTask, set_as_current=False)
    harness = Harness(app, service="cls", database_url=database)

    @app.task(name="old", shared=False)
    def old(n: int) -> int:
        return n

    app.finalize()
    # Others of this process may have registered shared tasks.
    assert "old" in harness.jobs()
    assert not any(name.startswith("celery.") for name in harness.jobs())
    assert old.apply(args=[1]).get() == 1
    cleanup = app.tasks["celery.backend_cleanup"]
    assert cleanup.Strategy == Task.Strategy
    assert cleanup.acks_late == Task.acks_late
    assert app.tasks["celery.ping"].apply().get() == "pong" if "celery.ping" in app.tasks else True
    harness.close()


def test_bound_tasks_and_retry(app: Celery) -> None:
    @Harness.of(app).job(name="bound", bind=True, shared=False)
    def bound(self: JobTask, session: Session, how: str) -> str:
        if how == "retry":
            self.retry(countdown=7, exc=ValueError("x"))
        if how == "replace":
            self.replace(None)
        if how == "chord":
            self.add_to_chord(None)
        if how == "args":
            self.retry(args=[1])
        return self.name

    assert bound.apply(args=["name"]).get() == "bound"
    with pytest.raises(RetryLater) as raised:
        bound.apply(args=["retry"], throw=True)
    assert raised.value.delay == 7
    for how in ("replace", "chord", "args"):
        with pytest.raises(UsageError):
            bound.apply(args=[how], throw=True)


def test_what_cannot_be_a_schema_is_refused_at_import(app: Celery) -> None:
    class Opaque:
        pass

    def opaque(session: Session, thing: Opaque) -> None: ...

    with pytest.raises(SignatureError, match="thing"):
        Harness.of(app).job(name="opaque", shared=False)(opaque)


def test_delay_refuses_arguments_that_no_handler_could_be_called_with(app: Celery, credit: Any) -> None:
    for args, kwargs, says in (
        ((), {}, "missing a required argument: 'n'"),
        ((1, True, 3), {}, "too many positional arguments"),
        ((object(), 1, True), {}, r"session, job: injected, not sent"),
        ((), {"n": 1, "m": 2}, "unexpected keyword argument 'm'"),
        ((1,), {"n": 1}, "multiple values for argument 'n'"),
        ((), {"n": 1, "session": None}, "unexpected keyword argument 'session'"),
    ):
        with pytest.raises(TypeError, match=says) as raised:
            credit.delay(*args, **kwargs)
        assert str(raised.value).startswith("credit() ")
    assert credit.delay("not a number").id, "what they are is checked by the worker, which keeps the evidence"
    assert credit.apply_async(kwargs={"m": 2}).id, "of beat and canvas: a letter says more than a line of their logs"

    @Harness.of(app).job(name="anything", shared=False, bind=True)
    def anything(self: JobTask, session: Session, *numbers: int, **more: str) -> None: ...

    assert anything.delay(1, 2, a="b").id


def test_default_ids_are_uuid7_and_natural_ones_stay(credit: Any) -> None:
    assert uuid.UUID(credit.delay(n=1).id).version == 7
    assert credit.apply_async(kwargs={"n": 1}, task_id="order-1").id == "order-1"


def test_a_second_job_of_the_handler_inherits_the_correlation_id(app: Celery, credit: Any) -> None:
    sent: dict[str, Any] = {}

    @Harness.of(app).job(name="first", shared=False)
    def first(job: Job) -> None:
        credit.apply_async(kwargs={"n": 1}, task_id="second")

    def watch(headers: Any = None, **_: Any) -> None:
        sent.update(headers)

    from celery.signals import before_task_publish

    before_task_publish.connect(watch)
    try:
        with pytest.warns(DualWrite, match="credit is sent from inside"):
            first.apply(task_id="first-id", throw=True)
    finally:
        before_task_publish.disconnect(watch)
    assert sent["id"] == "second"
    assert sent["harness_correlation_id"] == "first-id"


def test_an_unannotated_session_is_refused(app: Celery) -> None:
    def bare(session, n: int) -> None:  # type: ignore[no-untyped-def]
        ...

    with pytest.raises(SignatureError, match="session: "):
        Harness.of(app).job(name="bare", shared=False)(bare)


def test_one_permanent_type_needs_no_tuple(app: Celery) -> None:
    def handler() -> None: ...

    job = Harness.of(app).job(name="one_type", permanent=ValueError, shared=False)(handler)
    assert ValueError in job.spec.permanent
