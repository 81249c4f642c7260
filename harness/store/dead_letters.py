"""Dead letters: the evidence of every job that did not succeed, until a person or a replay has settled it.

How one is written and what is done to it; `letters` has how they are read, `letter_upkeep` what beat does with them.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, func, literal, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from harness.core.message_view import view_of
from harness.core.reason import Reason
from harness.store.inbox import Arrival
from harness.store.letter_upkeep import LetterUpkeep
from harness.store.processed_jobs import Key


class DeadLetters(LetterUpkeep):
    """The SQL of `dead_letters`."""

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
