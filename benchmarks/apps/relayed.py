"""A job that says when it began; what the relay's benchmark enqueues."""

import os

from sqlalchemy import text
from sqlalchemy.orm import Session

from benchmarks.apps.common import app_of
from harness import Harness

STARTED = text("INSERT INTO bench.started (number, at) VALUES (:number, extract(epoch FROM clock_timestamp()))")

app = app_of("relayed")
harness = Harness(app, notify=os.environ.get("BENCH_NOTIFY") != "off", relay=os.environ.get("BENCH_RELAY", "off"))


@harness.job(name="bench.mark", shared=False)
def mark(session: Session, number: int) -> None:
    session.execute(STARTED, {"number": number})
