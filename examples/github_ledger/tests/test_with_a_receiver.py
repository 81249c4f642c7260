"""Deliveries as a gateway publishes them: each is booked once, and what is none is a dead letter."""

import json
from pathlib import Path
from uuid import uuid4

from kombu import Connection, Producer
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from examples.github_ledger.ledger import Account, open_account
from harness.store.database import with_driver
from harness.testing import Worker

DELIVERIES = Path(__file__).parents[1] / "deliveries.ndjson"


def test_each_delivery_is_booked_once(harness_database_url: str, harness_broker_url: str, tmp_path: Path) -> None:
    deliveries = [json.loads(line) for line in DELIVERIES.read_bytes().splitlines()][:20]
    repositories = {delivery["payload"]["repository"]["full_name"] for delivery in deliveries}
    prefix = str(uuid4())
    engine = create_engine(with_driver(harness_database_url), poolclass=NullPool)
    with Session(engine) as session, session.begin():
        for repository in repositories:
            open_account(session, repository)
        before = sum(session.get_one(Account, repository).activities for repository in repositories)
    worker = Worker(
        "examples.github_ledger.receiver:app",
        tmp_path,
        broker_url=harness_broker_url,
        database_url=harness_database_url,
        service="github_ledger",
    )
    with worker, Connection(harness_broker_url) as connection:
        producer = Producer(connection)

        def publish(body: bytes, **headers: str) -> None:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            producer.publish(
                body,
                routing_key="github_deliveries",
                headers=named,
                content_type="application/json",
                content_encoding="utf-8",
            )

        worker.until(lambda: "receive: ready" in worker.log.read_text(), 60, "the receiver is ready")
        for delivery in deliveries * 2:
            own = f"{prefix}-{delivery['id']}"
            publish(json.dumps(delivery["payload"]).encode(), X_GitHub_Delivery=own, X_GitHub_Event=delivery["event"])
        publish(b"{}")
        for delivery in deliveries:
            worker.wait(f"{prefix}-{delivery['id']}", "done", 60)
        worker.until(lambda: "dead job_id=sha256:" in worker.log.read_text(), 30, "the one without an id is dead")
    with Session(engine) as session:
        after = sum(session.get_one(Account, repository).activities for repository in repositories)
    assert after - before == len(deliveries)
