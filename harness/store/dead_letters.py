"""Dead letters: the evidence of every job that did not succeed, until a person or a replay has settled it."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Row, Table, delete, func, literal, select, update
from sqlalchemy.dialects.postgresql import INTERVAL, insert
from sqlalchemy.orm import Session

from harness.core.message_view import view_of
from harness.core.reason import Reason
from harness.store.inbox import Arrival, message_of, seconds
from harness.store.letter import Filter, Letter
from harness.store.processed_jobs import Key


class DeadLetters:
    """The SQL of `dead_letters`."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def _letter(self, row: Row[Any]) -> Letter:
        plain = {
            name: getattr(row, name)
            for name in Letter.__dataclass_fields__
            if name not in ("message", "reason", "digest")
        }
        digest = None if row.digest is None else bytes(row.digest)
        return Letter(message=message_of(row), reason=Reason(row.reason), digest=digest, **plain)

    def write(
        self,
        session: Session,
        arrival: Arrival,
        *,
        reason: Reason,
        attempts: int,
        deliveries: int,
        failures: Sequence[dict[str, Any]],
        payload: Any,
    ) -> int:
        """Write the letter of a job; a letter that was replayed and failed again is the same row, to be reviewed again.

        `failures` are all of this life of the job, the last one last. `payload`: a view of the message for people, of
        JSON's own types; None has it made of the message. Returns the letter's id.
        """
        t = self.table
        last = failures[-1]
        new = insert(t).values(
            **arrival.columns(),
            payload=view_of(arrival.message) if payload is None else payload,
            reason=str(reason),
            attempts=attempts,
            deliveries=deliveries,
            error_type=last["error_type"],
            error_message=last["message"],
            traceback=last["traceback"],
            fingerprint=last["fingerprint"],
            failures=list(failures),
        )
        again = new.on_conflict_do_update(
            index_elements=["consumer", "job_id"],
            index_where=t.c.resolved_at.is_(None),
            set_={
                **{
                    name: new.excluded[name]
                    for name in (
                        "reason",
                        "attempts",
                        "deliveries",
                        "error_type",
                        "error_message",
                        "traceback",
                    )
                },
                "fingerprint": new.excluded.fingerprint,
                "failures": t.c.failures.op("||")(new.excluded.failures),
                "status": "pending_review",
                "alerted_at": None,
                "updated_at": func.now(),
                "lineage": t.c.lineage.op("||")(
                    func.jsonb_build_object(
                        "event",
                        "failed_again",
                        "at",
                        func.now(),
                        "replay",
                        t.c.replays,
                        "reason",
                        new.excluded.reason,
                    )
                ),
            },
        ).returning(t.c.id)
        return int(session.execute(again).scalar_one())

    def get(self, session: Session, service: str, letter_id: int, *, lock: bool = False) -> Letter | None:
        """One letter of a service, held until this transaction ends with `lock`."""
        t = self.table
        query = select(t).where(t.c.id == letter_id, t.c.service == service)
        row = session.execute(query.with_for_update() if lock else query).first()
        return None if row is None else self._letter(row)

    def open_of(self, session: Session, key: Key, *, younger: float) -> Letter | None:
        """The open letter of a job whose last verdict is less than `younger` seconds old."""
        t = self.table
        query = select(t).where(
            t.c.consumer == key.consumer,
            t.c.job_id == key.job_id,
            t.c.resolved_at.is_(None),
            t.c.updated_at > func.now() - seconds(younger),
        )
        row = session.execute(query).first()
        return None if row is None else self._letter(row)

    def open_one(self, session: Session, key: Key) -> Letter | None:
        """The open letter of a job."""
        t = self.table
        query = select(t).where(t.c.consumer == key.consumer, t.c.job_id == key.job_id, t.c.resolved_at.is_(None))
        row = session.execute(query).first()
        return None if row is None else self._letter(row)

    def key_of(self, session: Session, service: str, letter_id: int) -> Key | None:
        """Whose letter it is: neither ever changes, so that the fence can be locked before the letter is."""
        t = self.table
        query = select(t.c.job_id, t.c.consumer).where(t.c.id == letter_id, t.c.service == service)
        row = session.execute(query).first()
        return None if row is None else Key(row.job_id, row.consumer)

    def replayed(self, session: Session, letter_id: int, actor: str) -> None:
        """Mark a held letter as handed to the inbox again."""
        t = self.table
        event = func.jsonb_build_object(
            "event", "replayed", "at", func.now(), "actor", actor, "replay", t.c.replays + 1
        )
        session.execute(
            update(t)
            .where(t.c.id == letter_id)
            .values(
                status="replayed",
                replays=t.c.replays + 1,
                reviewer=actor,
                reviewed_at=func.now(),
                updated_at=func.now(),
                surfaced=None,
                lineage=t.c.lineage.op("||")(event),
            )
        )

    def resolve(self, session: Session, key: Key) -> int | None:
        """The job has succeeded: close its open letter, if it has one. Returns the letter's id."""
        t = self.table
        return session.execute(
            update(t)
            .where(t.c.consumer == key.consumer, t.c.job_id == key.job_id, t.c.resolved_at.is_(None))
            .values(
                status="replayed",
                resolved_at=func.now(),
                updated_at=func.now(),
                lineage=t.c.lineage.op("||")(
                    func.jsonb_build_object("event", "resolved", "at", func.now(), "replay", t.c.replays)
                ),
            )
            .returning(t.c.id)
        ).scalar()

    def note(self, session: Session, key: Key, event: str, **more: str) -> int | None:
        """Add to the history of a job's open letter what has become known since; the letter's id, None without one."""
        t = self.table
        said = func.jsonb_build_object("event", event, "at", func.now(), *(x for pair in more.items() for x in pair))
        return session.execute(
            update(t)
            .where(t.c.consumer == key.consumer, t.c.job_id == key.job_id, t.c.resolved_at.is_(None))
            .values(lineage=t.c.lineage.op("||")(said))
            .returning(t.c.id)
        ).scalar()

    def rekey(self, session: Session, letter_id: int, consumer: str) -> None:
        """Let the open letter follow its job to another consumer's key.

        Where the job has an open letter there already, that one stands for it: this one is closed, and says so.
        """
        t, other = self.table, self.table.alias()
        there: Any = (
            select(other.c.id)
            .where(other.c.consumer == consumer, other.c.job_id == t.c.job_id, other.c.resolved_at.is_(None))
            .scalar_subquery()
        )
        mine = update(t).where(t.c.id == letter_id, t.c.resolved_at.is_(None))
        session.execute(mine.where(there.is_(None)).values(consumer=consumer))
        session.execute(mine.where(t.c.consumer != consumer).values(self._superseded(there)))

    def supersede(self, session: Session, letter_id: int, by: int | None) -> None:
        """Close an open letter, for another one, `by`, stands for its job now; None where that was there before."""
        t = self.table
        mine = update(t).where(t.c.id == letter_id, t.c.resolved_at.is_(None))
        session.execute(mine.values(self._superseded(literal(by, BigInteger))))

    def _superseded(self, by: Any) -> dict[str, Any]:
        event = func.jsonb_build_object("event", "superseded", "at", func.now(), "by", by)
        return {
            "status": "replayed",
            "resolved_at": func.now(),
            "updated_at": func.now(),
            "lineage": self.table.c.lineage.op("||")(event),
        }

    def discard(self, session: Session, letter_id: int, *, actor: str, reason: str) -> None:
        """Close a held letter for good; the database refuses an empty reason."""
        t = self.table
        session.execute(
            update(t)
            .where(t.c.id == letter_id)
            .values(
                status="discarded",
                discard_reason=reason,
                reviewer=actor,
                reviewed_at=func.now(),
                resolved_at=func.now(),
                updated_at=func.now(),
            )
        )

    def surface(self, session: Session, letter_id: int, why: str) -> None:
        """Hand a held letter to a person: the sweep leaves it alone from now on."""
        t = self.table
        session.execute(update(t).where(t.c.id == letter_id).values(surfaced=why, updated_at=func.now()))

    def find(self, session: Session, service: str, which: Filter, *, limit: int | None = 50) -> list[Letter]:
        """Letters of a service, newest first."""
        t = self.table
        rows = session.execute(select(t).where(*which.terms(self.table, service)).order_by(t.c.id.desc()).limit(limit))
        return [self._letter(row) for row in rows]

    def ids(self, session: Session, service: str, which: Filter) -> list[int]:
        """The ids of the letters that fit, oldest first."""
        t = self.table
        return [*session.execute(select(t.c.id).where(*which.terms(self.table, service)).order_by(t.c.id)).scalars()]

    def count(self, session: Session, service: str, which: Filter) -> int:
        """How many letters fit."""
        query = select(func.count()).select_from(self.table).where(*which.terms(self.table, service))
        return session.execute(query).scalar_one()

    def pending_ids(self, session: Session, service: str, task: str, consumer: str) -> list[int]:
        """The letters of a job that the sweep has to look at, oldest first."""
        t = self.table
        query = select(t.c.id).where(
            t.c.service == service,
            t.c.task == task,
            t.c.consumer == consumer,
            t.c.status == "pending_review",
            t.c.surfaced.is_(None),
        )
        return [*session.execute(query.order_by(t.c.id)).scalars()]

    def claim(self, session: Session, service: str, letter_id: int) -> Letter | None:
        """Have a pending letter for one sweep alone, until this transaction ends; None when it is not to be had.

        The claim is an advisory lock and not a lock of the row: who waits for a fence may hold no letter, and a
        verdict must not wait for a gate.
        """
        t = self.table
        name = func.hashtextextended(f"{t.fullname}:{letter_id}", 0)
        if not session.execute(select(func.pg_try_advisory_xact_lock(name))).scalar_one():
            return None
        # A statement of its own: it sees what the sweep that held the claim before has committed.
        letter = self.get(session, service, letter_id)
        pending = letter is not None and letter.status == "pending_review" and letter.surfaced is None
        return letter if pending else None

    def alerted(self, session: Session, letter_id: int) -> None:
        """Note that the harness's subscribers (log, Sentry, alerts) have been told of the letter.

        Waits for nobody: a letter that a replay holds at this moment may be told of a second time.
        """
        t = self.table
        free = select(t.c.id).where(t.c.id == letter_id, t.c.alerted_at.is_(None)).with_for_update(skip_locked=True)
        session.execute(update(t).where(t.c.id == free.scalar_subquery()).values(alerted_at=func.clock_timestamp()))

    def unalerted(self, session: Session, service: str, *, after: timedelta, within: timedelta) -> list[Letter]:
        """The pending letters, oldest first, of which nobody was told `after` their verdict; no older than `within`.

        One caller at a time gets them, until its transaction ends; the others get none.
        """
        t = self.table
        name = func.hashtextextended(f"{t.fullname}:unalerted:{service}", 0)
        if not session.execute(select(func.pg_try_advisory_xact_lock(name))).scalar_one():
            return []
        query = select(t).where(
            t.c.service == service,
            t.c.status == "pending_review",
            t.c.alerted_at.is_(None),
            t.c.updated_at.between(func.now() - literal(within, INTERVAL), func.now() - literal(after, INTERVAL)),
        )
        return [self._letter(row) for row in session.execute(query.order_by(t.c.id).limit(1000))]

    def prune(self, session: Session, service: str, tenant: str | None, ttl: timedelta, limit: int) -> int:
        """Delete up to `limit` letters of a tenant that were resolved longer ago than `ttl`; returns how many."""
        t = self.table
        old = (
            select(t.c.id)
            .where(*self._prunable(service, ttl), t.c.tenant.is_not_distinct_from(tenant))
            .limit(limit)
            .with_for_update(skip_locked=True)
            .cte("old")
            .prefix_with("MATERIALIZED")
        )
        return len(session.execute(delete(t).where(t.c.id.in_(select(old.c.id))).returning(t.c.id)).all())

    def prunable_tenants(self, session: Session, service: str, ttl: timedelta) -> list[str | None]:
        """Every tenant that has letters which `prune` would delete."""
        t = self.table
        return [*session.execute(select(t.c.tenant).where(*self._prunable(service, ttl)).distinct()).scalars()]

    def _prunable(self, service: str, ttl: timedelta) -> tuple[ColumnElement[bool], ...]:
        t = self.table
        return (
            t.c.service == service,
            t.c.status != "pending_review",
            t.c.resolved_at < func.now() - literal(ttl, INTERVAL),
        )
