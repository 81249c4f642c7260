"""Right uses: no type checker has anything to say."""

from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Celery
from pydantic import BaseModel, PositiveInt
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session, scoped_session

from harness import Enqueued, Harness, Job, JobTask, Policy

app = Celery("typed")
harness = Harness(app)


class Order(BaseModel):
    id: int


@harness.job
def credit(session: Session, account: int, points: PositiveInt = 1, *, note: str = "") -> int:
    return account + points


@harness.job(name="typed.named", policy=Policy())
def named(session: Session, job: Job, account: int) -> str:
    return job.id


@harness.job(bind=True, max_replays=5)
def bound(self: JobTask, session: Session, account: int) -> None:
    self.retry(countdown=5)


@harness.job()
def ordered(session: Session, job: Job, order: Order) -> None: ...


@harness.job
def with_job(job: Job, account: int) -> None: ...


@harness.job
def plain(account: int) -> None: ...


@harness.job
def anything(session: Session, payload: dict[str, Any], n: int = 1) -> None: ...


@harness.job
def late(account: int, session: Session) -> None: ...


@harness.job
def third(account: int, points: int, session: Session, job: Job) -> None: ...


def send(session: Session) -> None:
    credit.delay(7)
    credit.delay(7, 50, note="x")
    credit.delay(account=7, points=50)
    named.delay(account=7)
    bound.delay(7)
    ordered.delay(Order(id=1))
    with_job.delay(account=7)
    plain.delay(account=7)
    anything.delay({"a": 1}, n=2)
    late.delay(account=7)
    third.delay(account=7, points=1)
    credit.apply_async(kwargs={"account": 7}, task_id="order-1", countdown=3)
    total: int = credit(session, 7, points=2)
    same: int = credit(session=session, account=total)
    print(same, credit.name, credit.s(7, note="x"), named.si(account=7))


def enqueue(session: Session, connection: Connection, scoped: scoped_session[Session]) -> Enqueued:
    harness.enqueue(session, credit, 7, points=50, note="x")
    harness.enqueue(connection, named, account=7)
    harness.enqueue(scoped, bound, account=7)
    harness.enqueue(session, ordered, order=Order(id=1))
    harness.enqueue(session, with_job, 7)
    harness.enqueue(session, plain, 7)
    harness.enqueue(session, late, account=7)
    harness.enqueue(session, credit, job_id="order-4711", account=7, points=50)
    harness.enqueue(session, credit.s(7), job_id="order-4711", delay=60, priority=5, tenant="acme")
    harness.enqueue(session, credit.s(7), delay=timedelta(hours=1), expires=timedelta(days=1))
    harness.enqueue(session, credit.s(7), eta=datetime.now(UTC), expires=3600.0, ordering_key="account-7")
    harness.enqueue(session, credit.s(7).set(task_id="order-4711"))
    many: list[Enqueued] = harness.enqueue_many(session, [credit.s(n) for n in range(10)])
    return many[0]


async def enqueue_async(session: AsyncSession, connection: AsyncConnection) -> None:
    one: Enqueued = await harness.enqueue(session, credit, account=7)
    two: Enqueued = await harness.enqueue(connection, credit.s(7), job_id="order-4711")
    many: list[Enqueued] = await harness.enqueue_many(session, [named.s(account=1)])
    print(one.job_id, two.state, two.is_new, many)
