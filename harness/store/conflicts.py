"""The SQL of a conflict: its fence, its letter and its audit row in one statement, on whatever connection there is."""

import base64
import json
from typing import Any

from sqlalchemy import Text, TextClause, bindparam, text

from harness.core.failure import Failure
from harness.core.message_view import view_of
from harness.core.reason import Reason
from harness.store import codec
from harness.store.enqueueing import Statement
from harness.store.inbox import Arrival


class Conflicts:
    """The one statement for one schema."""

    def __init__(self, fences: str, letters: str, audit: str) -> None:
        # Fence first: where it is there already, the same conflict was met before and nothing is written.
        self._sql = _statement(
            f"""
            WITH new AS MATERIALIZED (
                SELECT * FROM json_to_record(CAST(:row AS json)) AS r(
                    service text, consumer text, task text, job_id text, body text, content_type text,
                    content_encoding text, headers text, properties text, queue text, ordering_key text,
                    sequence bigint, tenant text, priority smallint, correlation_id text, digest text, payload jsonb,
                    reason text, error_type text, error_message text, fingerprint text, failures jsonb,
                    actor text, details jsonb
                )
            ), fence AS (
                INSERT INTO {fences} (job_id, consumer, state, digest)
                SELECT n.job_id, n.consumer, 'dead', decode(n.digest, 'base64') FROM new n
                ON CONFLICT (job_id, consumer) DO NOTHING RETURNING job_id
            ), letter AS (
                INSERT INTO {letters} (
                    service, consumer, task, job_id, body, content_type, content_encoding, headers, properties, queue,
                    ordering_key, sequence, tenant, priority, correlation_id, digest, payload, reason, attempts,
                    deliveries, error_type, error_message, traceback, fingerprint, failures
                )
                SELECT n.service, n.consumer, n.task, n.job_id, decode(n.body, 'base64'), n.content_type,
                    n.content_encoding, convert_to(n.headers, 'UTF8'), convert_to(n.properties, 'UTF8'), n.queue,
                    n.ordering_key, n.sequence, n.tenant, n.priority, n.correlation_id, decode(n.digest, 'base64'),
                    n.payload, n.reason, 0, 1, n.error_type, n.error_message, '', n.fingerprint, n.failures
                FROM new n JOIN fence USING (job_id)
                RETURNING id
            )
            INSERT INTO {audit} (service, actor, action, letter_id, consumer, job_id, reason, details)
            SELECT n.service, n.actor, 'dead_lettered', l.id, n.consumer, n.job_id, n.reason, n.details
            FROM letter l CROSS JOIN new n
            RETURNING letter_id
            """,
            "row",
        )

    def write(
        self,
        arrival: Arrival,
        own_id: str,
        failure: Failure,
        at: str,
        *,
        digest: bytes | None = None,
        actor: str = "",
        payload: Any = None,
    ) -> Statement:
        """Write the letter of `arrival` under `own_id`; its `letter_id` comes back, no row where it is there already.

        `digest`: of its content, where the arrival does not say it. `payload`: a view for people, of JSON's own types;
        None has it made of the message. `at`: when, ISO 8601.
        """
        message, content = arrival.message, digest or arrival.digest
        assert content is not None, "without a digest nothing conflicts"
        row = {
            "service": arrival.service,
            "consumer": arrival.consumer,
            "task": arrival.task,
            "job_id": own_id,
            "body": base64.b64encode(message.body).decode("ascii"),
            "content_type": message.content_type,
            "content_encoding": message.content_encoding,
            "headers": codec.dumps(message.headers).decode("ascii"),
            "properties": codec.dumps(message.properties).decode("ascii"),
            "queue": message.queue,
            "ordering_key": arrival.ordering_key,
            "sequence": arrival.sequence,
            "tenant": arrival.tenant,
            "priority": arrival.priority,
            "correlation_id": arrival.correlation_id,
            "digest": base64.b64encode(content).decode("ascii"),
            "payload": view_of(message) if payload is None else payload,
            "reason": str(Reason.conflict),
            "error_type": failure.error_type,
            "error_message": failure.message,
            "fingerprint": failure.fingerprint,
            "failures": [failure.to_dict() | {"at": at, "attempt": 0, "worker": actor}],
            "actor": actor or "harness",
            "details": {"attempts": 0, "error_type": failure.error_type, "conflicts_with": arrival.job_id},
        }
        return Statement(self._sql, {"row": json.dumps(row)})


def _statement(sql: str, name: str) -> TextClause:
    return text(sql).bindparams(bindparam(name, type_=Text))
