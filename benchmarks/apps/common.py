"""What the three projects share: Celery's configuration, and the work itself."""

import os

from celery import Celery
from celery.signals import worker_process_init
from sqlalchemy import Engine, create_engine, text

from harness.store.database import with_driver

#: The ledger's row. `sent` is when the job was sent, in seconds since the epoch.
LEDGER = text("INSERT INTO bench.ledger (account_id, points, sent) VALUES (:account_id, :points, :sent)")


def app_of(variant: str) -> Celery:
    """A Celery app with the recommended configuration and a queue of its own."""
    app = Celery(variant, set_as_current=False)
    app.config_from_object("celeryconfig")
    app.conf.update(
        broker_url=os.environ["CELERY_BROKER_URL"],
        task_default_queue=f"bench.{variant}",
        task_acks_late=True,
        task_reject_on_worker_lost=True,
    )
    return app


def engine_of() -> Engine:
    """An engine of one connection per process of the pool, as the harness has."""
    engine = create_engine(with_driver(os.environ["HARNESS_DATABASE_URL"]), pool_size=1)

    @worker_process_init.connect(weak=False)  # type: ignore[untyped-decorator]
    def _forked(**_: object) -> None:
        engine.dispose(close=False)

    return engine
