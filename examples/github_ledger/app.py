"""A project's Celery app: books each webhook delivery of GitHub in a ledger.

    celery -A examples.github_ledger.app worker

GitHub delivers at least once, and so does the broker. The id of a delivery is the id of its job, so that a delivery
is booked once however often it comes.
"""

from typing import Any

from celery import Celery
from pydantic import BaseModel
from sqlalchemy import update
from sqlalchemy.orm import Session

from examples.github_ledger.ledger import Account, Entry
from harness import Harness, Job, Permanent

app = Celery("github_ledger")
app.config_from_object("celeryconfig")
harness = Harness(app)


class Repository(BaseModel):
    """The part of a delivery's `repository` that is booked."""

    full_name: str


class Sender(BaseModel):
    """The part of a delivery's `sender` that is booked."""

    login: str


class Delivery(BaseModel):
    """The part of a delivery that is booked. What else GitHub sends is kept in the message and not looked at."""

    action: str | None = None
    repository: Repository
    sender: Sender


@harness.job(name="github_ledger.book_activity")
def book_activity(session: Session, job: Job, event: str, payload: Delivery) -> None:
    """Book one delivery. `event` is GitHub's `X-GitHub-Event`; what does not fit `Delivery` never comes here."""
    book(session, job.id, event, payload)


def book(session: Session, delivery_id: str, event: str, payload: Delivery) -> None:
    """Write the entry and count it. Raises Permanent for a repository that no account has been opened for."""
    repository = payload.repository.full_name
    counted = session.scalar(
        update(Account)
        .where(Account.repository == repository)
        .values(activities=Account.activities + 1)
        .returning(Account.activities)
    )
    if counted is None:
        raise Permanent(f"no account for {repository}: open one, then replay")
    entry = Entry(
        delivery_id=delivery_id, repository=repository, event=event, action=payload.action, actor=payload.sender.login
    )
    session.add(entry)


def receive(delivery_id: str, event: str, payload: dict[str, Any]) -> None:
    """What the webhook's endpoint calls with `X-GitHub-Delivery`, `X-GitHub-Event` and the body."""
    book_activity.apply_async(kwargs={"event": event, "payload": payload}, task_id=delivery_id)
