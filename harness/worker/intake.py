"""What becomes of the messages of a source: a row of the inbox, or a letter; committed before anybody acknowledges.

Where the database is away, nothing becomes of them: `Away` is raised, and they are kept in hand.
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError

from harness.core.errors import TablesUnusable, Unrecorded
from harness.core.failure import Failure, Kind
from harness.core.outcome import Completed
from harness.process import deliver
from harness.process.busy import is_lock_timeout
from harness.receive import Received
from harness.store.database import DatabaseAway, sqlstate
from harness.store.enqueueing import Entry
from harness.worker.burial import MOST_FAILURES, OWN_FAULT, REFUSES, Burial, own_fault, refusal
from harness.worker.enqueue import run_steps
from harness.worker.news import news_of
from harness.worker.receive import steps_of
from harness.worker.taken import Away, Taken, arrival_of
from harness.worker.wire import copy_of

if TYPE_CHECKING:
    from harness.worker.harness import Harness


class Intake:
    """Takes messages in for one harness. `name` is how its process is called in letters."""

    def __init__(self, harness: "Harness", name: str) -> None:
        self.harness, self.name = harness, name
        # A message is held by its process, which goes on serving its connection to the broker meanwhile.
        self.limits = replace(harness.settings.limits, outage_hold=0.0)
        self.burial = Burial(harness, name, self.limits)

    def settle(self, batch: Sequence[Taken]) -> None:
        """Decide what can be decided now, and commit; `decided` says which. Raises Away.

        What is told of it is told by the caller, after the acknowledgement or before it.
        """
        plain = [one for one in batch if isinstance(one.read, Entry) and not one.replayed]
        rest = [one for one in batch if one not in plain]
        if len(plain) > 1:
            # One by one where they do not go together: each is then judged by itself.
            with contextlib.suppress(DatabaseAway, TablesUnusable, DBAPIError, ValueError, MemoryError, OverflowError):
                self._store(plain)
        away: Away | None = None
        for one in (*plain, *rest):
            if one.decided or one.not_before > time.monotonic():
                continue
            try:
                self._settle_one(one)
            except Away as error:
                if away is not None:
                    raise  # the second one: it is not the message
                away = error
        if away is not None:
            raise away

    def _settle_one(self, one: Taken) -> None:
        try:
            if one.replayed:
                self._deliver(one)
            elif isinstance(one.read, Entry):
                self._store([one])
            else:
                self.burial.bury(one, one.read)
        except (DatabaseAway, Unrecorded) as error:
            self._away(one, error)
        except TablesUnusable as error:
            # A missing table or right, an older schema: no fault of the message.
            why = error.__cause__
            raise Away(refusal(why) if isinstance(why, DBAPIError) else str(error), REFUSES) from error
        except (DBAPIError, ValueError, MemoryError, OverflowError) as error:
            if isinstance(error, DBAPIError) and is_lock_timeout(error):
                # Somebody's transaction has put the same job in and is still open: the others go on.
                one.not_before = time.monotonic() + self.limits.busy_delay
                return
            if isinstance(error, DBAPIError) and not sqlstate(error).startswith(OWN_FAULT):
                raise Away(refusal(error), REFUSES) from error
            self.burial.bury(one, own_fault(error))

    def _away(self, one: Taken, error: Exception) -> None:
        one.failures += 1
        if one.failures < MOST_FAILURES or not self.burial.serves():
            raise Away(str(error)) from error
        text = f"PostgreSQL failed over it {one.failures} times, and serves others: {error}"
        self.burial.bury(
            one, Failure(Kind.undecodable, "Unstorable", text, fingerprint=f"{one.source.name}:unstorable")
        )

    # -- the three ends ----------------------------------------------------------------------------------------------

    def _store(self, batch: Sequence[Taken]) -> None:
        entries = [one.read for one in batch if isinstance(one.read, Entry)]
        with self.harness.database.begin() as session:
            self.harness.store.fence.bound_waits(session, self.limits.fence_wait_ms)
            answers = run_steps(self.harness, session, steps_of(self.harness, entries))
        for one, entry, answer in zip(batch, entries, answers, strict=True):
            one.decided = True
            one.tell.append(news_of(self.harness, one, entry.arrival, answer))

    def _deliver(self, one: Taken) -> None:
        """A message that was a letter before and is tried again: behind the fence of its source, as any such job."""
        copy = copy_of(one.wire, self.harness.settings.service, one.source.spec.consumer)
        copy = replace(copy, arrival=arrival_of(one), eta=None, expires=None, sent_at=None)
        if isinstance(one.read, Failure):
            self.burial.bury(one, one.read, copy)
            return
        entry = one.read
        answers: list[Received] = []

        def call(args: Any, kwargs: Any, session: Any, job: Any) -> None:
            answers[:] = run_steps(self.harness, session, steps_of(self.harness, [entry]))

        database, store = self.harness.database, self.harness.store
        outcome = deliver(database, store, copy, one.source.spec, (), {}, call, self.limits)
        self.burial.decide(one, copy, outcome)
        if isinstance(outcome, Completed) and answers:
            one.tell = [news_of(self.harness, one, entry.arrival, answers[0])]
