"""The job on the harness."""

from pydantic import PositiveInt
from sqlalchemy.orm import Session

from benchmarks.apps.common import LEDGER, app_of
from harness import Harness

app = app_of("harness")
harness = Harness(app)


@harness.job(name="bench.credit", shared=False)
def credit(session: Session, account_id: int, points: PositiveInt, sent: float) -> None:
    session.execute(LEDGER, {"account_id": account_id, "points": points, "sent": sent})
