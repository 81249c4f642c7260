"""The fence as one writes it by hand: a row per task id, inserted in the transaction of the effect."""

from typing import Any

from celery import Task
from sqlalchemy import text
from sqlalchemy.orm import Session

from benchmarks.apps.common import LEDGER, app_of, engine_of

FENCE = text("INSERT INTO bench.seen (job_id) VALUES (:job_id) ON CONFLICT DO NOTHING")

app = app_of("handwritten")
engine = engine_of()


@app.task(name="bench.credit", bind=True, shared=False)  # type: ignore[untyped-decorator]
def credit(self: Task, account_id: int, points: int, sent: float) -> None:
    with Session(engine) as session, session.begin():
        fence: Any = session.execute(FENCE, {"job_id": self.request.id})
        if fence.rowcount == 0:
            return
        session.execute(LEDGER, {"account_id": account_id, "points": points, "sent": sent})
