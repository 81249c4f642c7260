"""A shop whose jobs end in every way that Flower can show."""

import os
import signal
import time

import tenacity
from celery import Celery
from pydantic import PositiveInt
from sqlalchemy import text
from sqlalchemy.orm import Session

from harness import Harness, Permanent, Policy, backoff

app = Celery("shop")
app.conf.update(task_default_queue="shop", broker_connection_retry_on_startup=True)
harness = Harness(app, relay_poll=0.05)
patient = Policy(wait=backoff(base=3600, cap=7200), reason="longer than any test takes")
once = Policy(stop=tenacity.stop_after_attempt(1), reason="tests do not wait")


class BankSilent(Exception):
    """The other side gave no answer."""


@harness.job(name="shop.credit_points")
def credit_points(session: Session, account_id: int, points: PositiveInt) -> int:
    session.execute(text("INSERT INTO credits VALUES (:id, :points)"), {"id": account_id, "points": points})
    return points


@harness.job(name="shop.charge_card", policy=patient)
def charge_card(session: Session, order: str) -> None:
    raise BankSilent(f"no answer for {order} in 5 s\nsecond line")


@harness.job(name="shop.send_invoice")
def send_invoice(session: Session, customer: int) -> None:
    raise Permanent(f"customer {customer} has no address")


@harness.job(name="shop.open_account", policy=once)
def open_account(session: Session, customer: int) -> str:
    if not session.scalar(text("SELECT count(*) FROM customers WHERE id = :id"), {"id": customer}):
        raise LookupError(f"no customer {customer}")
    return f"account of {customer}"


@harness.job(name="shop.render_pdf", policy=once)
def render_pdf(session: Session, order: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@harness.job(name="shop.import_orders")
def import_orders(session: Session, seconds: float) -> None:
    time.sleep(seconds)


@app.task(name="shop.plain")
def plain(number: int) -> int:
    return number + 1
