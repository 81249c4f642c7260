"""The fence: one row per job and consumer that says what became of it.

Whoever wants to decide anything about a job takes its fence first. A concurrent copy waits on the uncommitted row
until the first one has committed or rolled back, so that two copies never decide differently.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple, cast

from sqlalchemy import CursorResult, Result, Table, delete, select, text, update
from sqlalchemy.orm import Session

from harness.store.driver import first_row


class Key(NamedTuple):
    """What the fence is unique for: a job's id and the consumer (`service/task`) that runs it."""

    job_id: str
    consumer: str


class FenceState(StrEnum):
    """`done`: its effects are committed. `waiting`: the inbox owns it. `dead`: a letter owns it. `claimed`: its handler
    is at work outside of any transaction, and the inbox keeps its message."""

    DONE = "done"
    WAITING = "waiting"
    DEAD = "dead"
    CLAIMED = "claimed"


@dataclass(frozen=True, slots=True)
class FenceRow:
    """A fence as it stands."""

    state: FenceState
    digest: bytes | None
    result: bytes | None


class Fence:
    """The SQL of `processed_jobs`."""

    def __init__(self, table: Table) -> None:
        self.table = table
        name = table.fullname
        # One statement: the WHERE bounds the waits before anything is written. They are as before when the handler
        # begins, for RETURNING is evaluated when the row has been written, after all waiting.
        insert = (
            f"INSERT INTO {name} AS fence (job_id, consumer, state, digest) "
            "SELECT %(job_id)s, %(consumer)s, %(state)s, %(digest)s "
            "WHERE set_config('lock_timeout', %(wait)s, true) IS NOT NULL "
            "AND set_config('client_connection_check_interval', '2000', true) IS NOT NULL "
            "ON CONFLICT (job_id, consumer) DO "
        )
        claim = (
            "UPDATE SET state = excluded.state, processed_at = now(), "
            "digest = coalesce(fence.digest, excluded.digest) WHERE fence.state = 'waiting'"
        )
        usual = " RETURNING set_config('lock_timeout', %(usual)s, true)"
        self._sql = {False: f"{insert}NOTHING{usual}", True: f"{insert}{claim}{usual}"}

    def take(
        self,
        session: Session,
        key: Key,
        state: FenceState,
        *,
        relayed: bool,
        digest: bytes | None = None,
        wait_ms: int = 10_000,
    ) -> bool:
        """Take the fence for `state`; True when it is ours until this transaction ends.

        A copy from the broker can only insert it. A copy from the relay (`relayed`) may also turn `waiting` into
        `state`. Waits at most `wait_ms` milliseconds for another copy's uncommitted fence, then PostgreSQL
        raises `lock_not_available` (55P03).
        """
        connection = session.connection()
        parameters = {
            "job_id": key.job_id,
            "consumer": key.consumer,
            "state": state.value,
            "digest": digest,
            "wait": str(wait_ms),
            "usual": connection.info.get("lock_timeout", "0"),
        }
        return first_row(connection, self._sql[relayed], parameters) is not None

    def bound_waits(self, session: Session, wait_ms: int) -> None:
        """Wait at most so long for any lock of this transaction, which belongs to the harness alone."""
        session.connection().exec_driver_sql("SET LOCAL lock_timeout = %(wait)s", {"wait": wait_ms})

    def look(self, session: Session, key: Key, *, lock: bool = False) -> FenceRow | None:
        """The committed fence, or None. With `lock`, nobody else may change it until this transaction ends."""
        t = self.table
        query = select(t.c.state, t.c.digest, t.c.result).where(t.c.job_id == key.job_id, t.c.consumer == key.consumer)
        row = session.execute(query.with_for_update() if lock else query).first()
        if row is None:
            return None
        return FenceRow(FenceState(row.state), None if row.digest is None else bytes(row.digest), row.result)

    def set_state(self, session: Session, key: Key, state: FenceState) -> None:
        """Change a fence that this transaction already holds."""
        t = self.table
        session.execute(
            update(t)
            .where(t.c.job_id == key.job_id, t.c.consumer == key.consumer)
            .values(state=str(state), processed_at=text("now()"))
        )

    def leave_claim(self, session: Session, key: Key, state: FenceState, wait_ms: int) -> bool:
        """Turn a claimed fence into `state`, held until this transaction ends; False where it is not claimed.

        Whose claim it is, the inbox row says. Waits and fails as `take` does.
        """
        t = self.table
        self.bound_waits(session, wait_ms)
        claimed = update(t).where(
            t.c.job_id == key.job_id, t.c.consumer == key.consumer, t.c.state == FenceState.CLAIMED.value
        )
        return rows_of(session.execute(claimed.values(state=state.value, processed_at=text("now()")))) == 1

    def forget(self, session: Session, key: Key) -> None:
        """Delete a fence that this transaction holds, for its job goes on under another key."""
        t = self.table
        session.execute(delete(t).where(t.c.job_id == key.job_id, t.c.consumer == key.consumer))

    def keep_result(self, session: Session, key: Key, result: bytes) -> None:
        """Keep what the handler returned, for a duplicate that has to answer with it."""
        t = self.table
        session.execute(update(t).where(t.c.job_id == key.job_id, t.c.consumer == key.consumer).values(result=result))

    def pages(self, session: Session) -> int:
        """How many 8 KB pages the table has now: prune sweeps them by ctid range, so it needs no second index."""
        size = session.execute(
            text("SELECT pg_relation_size(CAST(:name AS regclass))"), {"name": self.table.fullname}
        ).scalar_one()
        return int(size) // 8192 + 1

    def prune(
        self,
        session: Session,
        service: str,
        ttl: timedelta,
        pages: tuple[int, int],
        inbox: Table,
        letters: Table,
        *,
        consumer: str | None = None,
    ) -> int:
        """Delete the service's fences older than `ttl` in pages [first, last) that nobody needs; returns how many.

        A fence stays while its job has an inbox row or an open letter, and while a transaction holds it. With
        `consumer`, only its fences go.
        """
        t = self.table
        whose = "starts_with(f.consumer, :whose)" if consumer is None else "f.consumer = :whose"
        free = text(
            f"ctid = ANY(ARRAY(SELECT f.ctid FROM {t.fullname} f"
            " WHERE f.ctid >= CAST(:first AS tid) AND f.ctid < CAST(:last AS tid)"
            f" AND {whose} AND f.state <> 'claimed' AND f.processed_at < now() - CAST(:ttl AS interval)"
            f" AND NOT EXISTS (SELECT 1 FROM {inbox.fullname} i WHERE i.consumer = f.consumer AND i.job_id = f.job_id)"
            f" AND NOT EXISTS (SELECT 1 FROM {letters.fullname} d WHERE d.consumer = f.consumer AND d.job_id = f.job_id"
            " AND d.resolved_at IS NULL) FOR UPDATE OF f SKIP LOCKED))"
        )
        parameters = _range(pages) | {"whose": consumer or f"{service}/", "ttl": ttl}
        return rows_of(session.execute(delete(t).where(free), parameters))

    def consumers(self, session: Session, service: str, pages: tuple[int, int]) -> list[str]:
        """The consumers of `service` that have fences in pages [first, last)."""
        query = text(
            f"SELECT DISTINCT consumer FROM {self.table.fullname}"
            " WHERE ctid >= CAST(:first AS tid) AND ctid < CAST(:last AS tid) AND starts_with(consumer, :whose)"
        )
        return sorted(session.execute(query, _range(pages) | {"whose": f"{service}/"}).scalars())


def _range(pages: tuple[int, int]) -> dict[str, object]:
    return {"first": f"({pages[0]},0)", "last": f"({pages[1]},0)"}


def rows_of(result: Result[Any]) -> int:
    """How many rows a DELETE or UPDATE has changed."""
    return cast(CursorResult[Any], result).rowcount
