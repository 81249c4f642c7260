"""The letter of a message that can't become a job: with the exact message or, where that can't be kept, what can."""

import hashlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

from harness.core.errors import Unrecorded
from harness.core.failure import Failure, Kind
from harness.core.outcome import Outcome
from harness.process.copy import Copy
from harness.process.record import record
from harness.process.spec import Limits
from harness.store.database import DatabaseAway, sqlstate
from harness.worker import announce
from harness.worker.taken import Away, Taken, arrival_of
from harness.worker.wire import Wire

if TYPE_CHECKING:
    from harness.worker.harness import Harness

log = logging.getLogger("harness")

#: Errors that are a message's own: data that PostgreSQL refuses, or has no room for in one value; a broken rule.
OWN_FAULT = ("22", "54", "23")
#: A message that PostgreSQL fails over so often, while it serves others, is given up as well.
MOST_FAILURES = 5
#: What is the matter where it answers, and lacks a right or a table.
REFUSES = "the database takes nothing in"
#: Bytes of a body that are kept where the whole can't be.
KEPT_OF_ALL = 1_000_000
#: Bytes of a body that are kept as they are. In a statement it has twice its size, and PostgreSQL takes none of 1 GiB.
WHOLE = 256 * 1024 * 1024


class Burial:
    """Writes letters for one receiver."""

    def __init__(self, harness: "Harness", name: str, limits: Limits) -> None:
        self.harness, self.name, self.limits = harness, name, limits

    def bury(self, one: Taken, failure: Failure, copy: Copy | None = None) -> None:
        """Write the letter: with the exact message or, where that can't be written, with what can."""
        copy = copy or Copy(arrival_of(one), worker=self.name)
        whole = (_as_it_is, Wire.with_plain_headers) if len(one.wire.message.body) <= WHOLE else ()
        for shorten in (*whole, _cut):
            try:
                kept = replace(copy, arrival=replace(copy.arrival, message=shorten(one.wire).message))
                self._record(one, kept, failure)
                return
            except (DBAPIError, ValueError, MemoryError, OverflowError) as error:
                if isinstance(error, DBAPIError) and not sqlstate(error).startswith(OWN_FAULT):
                    raise Away(refusal(error), REFUSES) from error
                log.warning("receive: the letter of a message can't be written so (%s)", type(error).__name__)
            except Unrecorded as error:
                one.failures += 1
                if one.failures < MOST_FAILURES or not self.serves():
                    raise Away(str(error)) from error
        raise Away("not even the beginning of a message can be written")

    def _record(self, one: Taken, copy: Copy, failure: Failure) -> None:
        database, store = self.harness.database, self.harness.store
        policy = one.source.spec.policy
        self.decide(one, copy, record(database, store, copy, failure, policy, self.limits))

    def decide(self, one: Taken, copy: Copy, outcome: Outcome) -> None:
        one.decided = True
        one.tell.append(lambda: announce.outcome(self.harness, copy, outcome, 0.0))

    def serves(self) -> bool:
        """Does the database answer now?"""
        try:
            with self.harness.database.begin() as session:
                self.harness.store.inbox.seconds_until_due(session, self.harness.settings.service)
            return True
        except (DatabaseAway, DBAPIError):
            return False


def refusal(error: DBAPIError) -> str:
    """What PostgreSQL says, and what to do where it lacks a right, or a table."""
    why = str(error.orig).strip().splitlines()[0][:300]
    do = {
        "42501": "give the role its rights: `celery … harness migrate --grants ROLE` writes them",
        "42P01": "run `celery … harness migrate`",
        "42703": "run `celery … harness migrate`",
        "3F000": "run `celery … harness migrate`",
    }.get(sqlstate(error))
    return why if do is None else f"{why}; {do}"


def own_fault(error: BaseException) -> Failure:
    """Not with its text in full: it quotes the message."""
    text = str(getattr(error, "orig", None) or error).strip().splitlines()
    kind = type(getattr(error, "orig", None) or error).__name__
    return Failure(
        Kind.undecodable, kind, f"PostgreSQL can't keep it: {text[0][:500] if text else kind}", fingerprint=kind
    )


def _as_it_is(wire: Wire) -> Wire:
    return wire


def _cut(wire: Wire) -> Wire:
    plain = wire.with_plain_headers()
    body = wire.message.body
    cut = {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    headers = {**plain.message.headers, "harness_cut": cut}
    return replace(plain, message=replace(plain.message, headers=headers, body=body[:KEPT_OF_ALL]))
