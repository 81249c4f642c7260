"""An app for `celery -A tests.cli.app`."""

from celery import Celery
from sqlalchemy.orm import Session

from harness import Harness

app = Celery("billing", broker="memory://")
harness = Harness(app)


@harness.job(name="pay", shared=False)
def pay(session: Session, account: int, points: int = 1) -> None: ...
