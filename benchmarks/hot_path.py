"""What the harness adds to one healthy job, in one process: python -m benchmarks.hot_path

Runs the same job (one insert into a ledger) without a fence, with a fence written by hand, and as a delivery of the
harness, taking turns in one run, on a PostgreSQL of its own (or HARNESS_DATABASE_URL). Prints the median of the paired
ratios; machines are noisy, so only ratios of one run are worth comparing. Without a broker: Celery's own share is the
same for all three.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from os import environ
from pathlib import Path
from typing import Any

from celery import Celery
from celery.app.trace import build_tracer, setup_worker_optimizations
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from harness import Harness
from harness.core.ids import uuid7
from harness.core.message import Message
from harness.dev.postgres import Postgres
from harness.worker.trace import trace_job
from harness.worker.wire import Wire

ROUNDS, JOBS = 9, 400
LEDGER = text("INSERT INTO bench_ledger (n) VALUES (:n)")
FENCE = text(
    "INSERT INTO core.processed_jobs (job_id, consumer, state) VALUES (:id, 'by-hand', 'done') "
    "ON CONFLICT DO NOTHING RETURNING 1"
)


def unfenced(engine: Engine) -> None:
    """The work alone, in a transaction."""
    with Session(engine) as session, session.begin():
        session.execute(LEDGER, {"n": 1})


def by_hand(engine: Engine) -> None:
    """The work behind a fence that somebody wrote by hand."""
    with Session(engine) as session, session.begin():
        assert session.execute(FENCE, {"id": uuid7()}).first()
        session.execute(LEDGER, {"n": 1})


def delivery(app: Celery) -> Callable[[], None]:
    """The same work as a delivery of the harness, from the message to the reply."""
    harness = Harness(app, service="bench")

    @harness.job(name="bench")
    def bench(session: Session, n: int) -> None:
        session.execute(LEDGER, {"n": n})

    setup_worker_optimizations(app)
    task = app.tasks["bench"]
    task.__trace__ = build_tracer("bench", task, app.loader, "bench", app=app)
    body = json.dumps([[1], {}, {}]).encode()

    def run() -> None:
        job_id = uuid7()
        headers = {"task": "bench", "id": job_id, "lang": "py"}
        message = Message(body, "application/json", "utf-8", headers, {}, "bench")
        _, reply, _ = trace_job("bench", job_id, dict(headers, delivery_info={}), Wire(message, False), None)
        assert reply.outcome == "completed", reply

    return run


def seconds(run: Callable[[], Any]) -> float:
    """How long JOBS runs take."""
    started = time.perf_counter()
    for _ in range(JOBS):
        run()
    return time.perf_counter() - started


def main(url: str) -> None:
    app = Celery("bench", broker="memory://", set_as_current=True)
    app.conf.update(harness_database_url=url, harness_relay="off")
    run = delivery(app)
    harness = Harness.of(app)
    harness.migrate()
    engine = harness.database.engine
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS bench_ledger (id bigserial PRIMARY KEY, n int)"))
    rounds = []
    for number in range(ROUNDS + 1):
        rounds.append((seconds(lambda: unfenced(engine)), seconds(lambda: by_hand(engine)), seconds(run)))
        print(f"round {number}: " + "  ".join(f"{value / JOBS * 1e6:6.0f} µs" for value in rounds[-1]), flush=True)
    warm = rounds[1:]
    vs_unfenced = statistics.median(bare / fenced for bare, _, fenced in warm)
    vs_hand = statistics.median(hand / fenced for _, hand, fenced in warm)
    added = statistics.median((fenced - hand) / JOBS * 1e6 for _, hand, fenced in warm)
    print(f"hot path: vs_unfenced={vs_unfenced:.2f} vs_handwritten={vs_hand:.2f} added_us={added:.0f}")


if __name__ == "__main__":
    if "HARNESS_DATABASE_URL" in environ:
        main(environ["HARNESS_DATABASE_URL"])
    else:
        with tempfile.TemporaryDirectory() as folder, Postgres(Path(folder)) as server:
            main(server.url)
