"""The SQL of an enqueue: any number of jobs in one statement, with one parameter.

It runs in the caller's transaction, on whatever driver the caller has. So the rows go in as one JSON text, which every
driver can send and which no limit on the number of parameters touches.
"""

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Text, TextClause, bindparam, text

from harness.store import codec
from harness.store.inbox import Arrival
from harness.store.processed_jobs import Key

_COLUMNS = {
    "consumer": "text",
    "task": "text",
    "job_id": "text",
    "body": "text",
    "content_type": "text",
    "content_encoding": "text",
    "headers": "text",
    "properties": "text",
    "queue": "text",
    "digest": "text",
    "ordering_key": "text",
    "tenant": "text",
    "priority": "smallint",
    "correlation_id": "text",
    "delay": "double precision",
    "eta": "timestamptz",
    "expires": "timestamptz",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A job on its way into the inbox: due at `eta`, or `delay` seconds from now by the database's clock."""

    arrival: Arrival
    delay: float = 0.0
    eta: datetime | None = None
    expires: datetime | None = None

    @property
    def key(self) -> Key:
        return Key(self.arrival.job_id, self.arrival.consumer)


@dataclass(frozen=True, slots=True)
class Statement:
    """What a connection of any kind is asked to execute; the rows are wanted."""

    sql: TextClause
    values: dict[str, str]


class Enqueueing:
    """The two statements of an enqueue for one schema."""

    def __init__(self, inbox: str, fences: str, generation: str) -> None:
        # What is known of a job already is left as it is. The look at the row comes first, so that an enqueue does not
        # wait for a handler that is at work on it; only for another transaction that has just put the same job in.
        self._insert = _statement(
            f"""
            WITH new AS MATERIALIZED (
                SELECT r.*, CASE WHEN r.ordering_key IS NOT NULL THEN nextval('{generation}') END AS sequence
                FROM json_to_recordset(CAST(:rows AS json)) AS r({", ".join(f"{n} {t}" for n, t in _COLUMNS.items())})
            )
            INSERT INTO {inbox} (
                service, consumer, task, job_id, body, content_type, content_encoding, headers, properties, queue,
                digest, ordering_key, sequence, tenant, priority, correlation_id, available_at, expires_at
            )
            SELECT :service, n.consumer, n.task, n.job_id, decode(n.body, 'base64'), n.content_type, n.content_encoding,
                convert_to(n.headers, 'UTF8'), convert_to(n.properties, 'UTF8'), n.queue, decode(n.digest, 'base64'),
                n.ordering_key, n.sequence, n.tenant, n.priority, n.correlation_id,
                coalesce(
                    n.eta, CASE WHEN n.delay > 0 THEN clock_timestamp() + n.delay * interval '1 second' END, now()
                ),
                n.expires
            FROM new n
            WHERE NOT EXISTS (SELECT 1 FROM {inbox} i WHERE i.consumer = n.consumer AND i.job_id = n.job_id)
              AND NOT EXISTS (
                SELECT 1 FROM {fences} f
                WHERE f.job_id = n.job_id AND f.consumer = n.consumer AND f.state IN ('done', 'dead')
              )
            ORDER BY n.consumer, n.job_id
            ON CONFLICT (consumer, job_id) DO NOTHING
            RETURNING job_id, consumer
            """,
            "rows",
            "service",
        )
        self._look = _statement(
            f"""
            SELECT k.job_id, k.consumer, f.state, f.digest AS fence_digest, i.id AS row_id, i.digest AS row_digest,
                i.body, i.content_type, i.content_encoding, i.headers, i.properties, i.queue
            FROM json_to_recordset(CAST(:keys AS json)) AS k(job_id text, consumer text)
            LEFT JOIN {fences} f ON f.job_id = k.job_id AND f.consumer = k.consumer
            LEFT JOIN {inbox} i ON i.job_id = k.job_id AND i.consumer = k.consumer
            """,
            "keys",
        )

    def insert(self, service: str, entries: Iterable[Entry]) -> Statement:
        """Put in what nobody knows of; the keys of the rows that are new come back."""
        rows = [_row(entry) for entry in entries]
        return Statement(self._insert, {"rows": json.dumps(rows), "service": service})

    def look(self, keys: Iterable[Key]) -> Statement:
        """What is known of these jobs: their fences and their rows."""
        return Statement(self._look, {"keys": json.dumps([key._asdict() for key in keys])})


def _statement(sql: str, *names: str) -> TextClause:
    return text(sql).bindparams(*(bindparam(name, type_=Text) for name in names))


def _row(entry: Entry) -> dict[str, Any]:
    arrival, message = entry.arrival, entry.arrival.message
    return {
        "consumer": arrival.consumer,
        "task": arrival.task,
        "job_id": arrival.job_id,
        "body": base64.b64encode(message.body).decode("ascii"),
        "content_type": message.content_type,
        "content_encoding": message.content_encoding,
        "headers": codec.dumps(message.headers).decode("ascii"),
        "properties": codec.dumps(message.properties).decode("ascii"),
        "queue": message.queue,
        "digest": None if arrival.digest is None else base64.b64encode(arrival.digest).decode("ascii"),
        "ordering_key": arrival.ordering_key,
        "tenant": arrival.tenant,
        "priority": arrival.priority,
        "correlation_id": arrival.correlation_id,
        "delay": entry.delay,
        "eta": None if entry.eta is None else entry.eta.isoformat(),
        "expires": None if entry.expires is None else entry.expires.isoformat(),
    }
