"""Plain Celery: the effect in a transaction, and no fence. A message that comes twice takes effect twice."""

from sqlalchemy.orm import Session

from benchmarks.apps.common import LEDGER, app_of, engine_of

app = app_of("unfenced")
engine = engine_of()


@app.task(name="bench.credit", shared=False)  # type: ignore[untyped-decorator]
def credit(account_id: int, points: int, sent: float) -> None:
    with Session(engine) as session, session.begin():
        session.execute(LEDGER, {"account_id": account_id, "points": points, "sent": sent})
