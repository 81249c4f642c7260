"""Wrong uses. Each line marked `# error` is one for both mypy and pyright; no other line is."""

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from harness import Enqueued
from tests.typing.right import anything, bound, credit, harness, named, ordered, plain, with_job


def send(session: Session) -> None:
    credit.delay()  # error
    credit.delay("7")  # error
    credit.delay(7, pionts=50)  # error
    credit.delay(7, 1, "x")  # error
    named.delay(account="7")  # error
    named.delay(7, 8)  # error
    bound.delay(account=None)  # error
    ordered.delay({"id": 1})  # error
    with_job.delay(acount=7)  # error
    plain.delay()  # error
    anything.delay(7)  # error
    anything.delay({}, n="x")  # error
    credit(session)  # error
    credit(session, "7")  # error
    text: str = credit(session, 7)  # error
    credit.s("7")  # error
    named.si()  # error
    print(text)


def enqueue(session: Session) -> None:
    harness.enqueue(session, credit)  # error
    harness.enqueue(session, credit, account="7")  # error
    harness.enqueue(session, named, 7, 8)  # error
    harness.enqueue(session, bound, account=7, points=1)  # error
    harness.enqueue(session, plain, nothing=1)  # error
    harness.enqueue("session", credit, account=7)  # error
    harness.enqueue(session, credit.s(account="7"), job_id="order-4711")  # error
    harness.enqueue(session, credit.s(7), delay="soon")  # error
    harness.enqueue(session, credit.s(7), prio=3)  # error
    harness.enqueue(session, credit.s(7), 7)  # error
    harness.enqueue_many(session, credit)  # error


async def enqueue_async(session: AsyncSession) -> None:
    await harness.enqueue(session, credit, account="7")  # error
    forgotten: Enqueued = harness.enqueue(session, credit, account=7)  # error
    print(forgotten)
