"""The app that the tests of ``harness dev`` run, as ``-A tests.dev.devapp``."""

from celery import Celery
from sqlalchemy import text
from sqlalchemy.orm import Session

from harness import Harness

app = Celery("devapp")
harness = Harness(app)


@harness.job(name="devapp.book")  # type: ignore[untyped-decorator]
def book(session: Session, value: str) -> None:
    session.execute(text("INSERT INTO kept VALUES (:value)"), {"value": value})
