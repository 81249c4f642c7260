"""What stands in the database: read with plain SQL, not through the harness that is being checked."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from sqlalchemy import create_engine, text

from examples.demo_kit.plan import Line
from examples.demo_kit.running import Place


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter, as far as the demo shows and checks it. `open`: its job has not succeeded since."""

    id: int
    job_id: str
    task: str
    reason: str
    attempts: int
    failures: int
    status: str
    error: str
    open: bool
    body: bytes


class State:
    """The tables of a run."""

    def __init__(self, at: Place) -> None:
        self._engine = create_engine(at.database, isolation_level="AUTOCOMMIT")

    def close(self) -> None:
        self._engine.dispose()

    def ledger(self) -> Counter[Line]:
        """Each line of the ledger, and how often it stands there."""
        rows = self._rows("SELECT delivery_id, repository, event, action, actor FROM entries")
        return Counter((row[0], row[1], row[2], row[3], row[4]) for row in rows)

    def totals(self) -> Counter[str]:
        """What each account has counted; nothing for one that has counted nothing."""
        return +Counter({row[0]: row[1] for row in self._rows("SELECT repository, activities FROM accounts")})

    def fences(self) -> dict[str, str]:
        """The state of each job."""
        return {row[0]: row[1] for row in self._rows("SELECT job_id, state FROM processed_jobs")}

    def waiting(self) -> int:
        """Jobs in the inbox."""
        return int(self._rows("SELECT count(*) FROM inbox")[0][0])

    def letters(self) -> list[Letter]:
        """Every letter, open or not, in order."""
        rows = self._rows(
            "SELECT id, job_id, task, reason, attempts, jsonb_array_length(failures) AS failures,"
            " status, error_type || ': ' || error_message AS error, resolved_at IS NULL AS open, body"
            " FROM dead_letters ORDER BY id"
        )
        return [Letter(**{**row._mapping, "body": bytes(row.body)}) for row in rows]

    def audited(self) -> Counter[str]:
        """How often each thing was done to a letter."""
        return Counter({row[0]: row[1] for row in self._rows("SELECT action, count(*) FROM audit_log GROUP BY action")})

    def _rows(self, statement: str) -> list[Any]:
        with self._engine.connect() as connection:
            return list(connection.execute(text(statement)))
