"""Products that break one law each. The machine has to find every one of them, or it proves nothing.

What takes three rare things in a row is in tests/model, which tries every interleaving.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from sqlalchemy import delete, text

from harness.core.outcome import Dead
from harness.core.reason import Reason
from harness.process.copy import Copy
from harness.process.verdict import NotOurs
from harness.store.contents import conflict_failure, now
from harness.store.dead_letters import DeadLetters
from harness.store.inbox import Inbox
from harness.store.letter import Letter
from harness.store.processed_jobs import Fence, FenceState
from harness.store.store import Store

Break = Callable[[pytest.MonkeyPatch], None]


def verdict_without_the_fence(patch: pytest.MonkeyPatch) -> None:
    def own(session: Any, store: Store, copy: Copy, limits: Any) -> Any:
        if copy.generation is None:
            return None
        row = store.inbox.lock(session, copy.key, copy.generation)
        if row is None:
            raise NotOurs
        return row

    patch.setattr("harness.process.verdict.own", own)


def prune_without_a_look_at_the_inbox(patch: pytest.MonkeyPatch) -> None:
    def prune(self: Fence, session: Any, service: str, ttl: Any, *args: Any, **kwargs: Any) -> int:
        old = text("starts_with(consumer, :whose) AND processed_at < now() - CAST(:ttl AS interval)")
        parameters = {"whose": f"{service}/", "ttl": ttl}
        return int(session.execute(delete(self.table).where(old), parameters).rowcount)

    patch.setattr(Fence, "prune", prune)


def a_retry_keeps_its_generation(patch: pytest.MonkeyPatch) -> None:
    usual = Inbox.defer

    def defer(self: Inbox, session: Any, row_id: int, **how: Any) -> None:
        t = self.table
        before = session.execute(t.select().where(t.c.id == row_id)).one().generation
        usual(self, session, row_id, **how)
        session.execute(t.update().where(t.c.id == row_id).values(generation=before))

    patch.setattr(Inbox, "defer", defer)


def a_producers_copy_takes_a_waiting_fence(patch: pytest.MonkeyPatch) -> None:
    fence = Store.of("core").fence
    patch.setitem(fence._sql, False, fence._sql[True])


def a_relays_copy_takes_any_fence(patch: pytest.MonkeyPatch) -> None:
    fence = Store.of("core").fence
    patch.setitem(fence._sql, True, fence._sql[True].replace(" WHERE fence.state = 'waiting'", ""))


def deliveries_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    def count(database: Any, store: Any, copy: Copy, limits: Any) -> tuple[Copy, int]:
        return replace(copy, redelivered=False), 1

    for name in ("deliver", "record"):
        patch.setattr(import_module(f"harness.process.{name}"), "count", count)


def success_leaves_the_letter_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeadLetters, "resolve", lambda self, session, key: None)


def a_letter_leaves_the_row(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Inbox, "remove", lambda self, session, key, digest=None: False)


def a_replay_draws_no_generation(patch: pytest.MonkeyPatch) -> None:
    usual = Inbox.add

    def add(self: Inbox, session: Any, arrival: Any, **how: Any) -> bool:
        return usual(self, session, arrival, **(how | {"fresh": False}))

    patch.setattr(Inbox, "add", add)


def another_content_is_a_duplicate(patch: pytest.MonkeyPatch) -> None:
    for name in ("conflict", "count"):
        patch.setattr(f"harness.process.{name}.check", lambda session, store, copy, fence: None)


def another_content_is_written_over_the_first(patch: pytest.MonkeyPatch) -> None:
    def record(database: Any, store: Store, copy: Copy, found: Any, limits: Any, payload: Any = None) -> Dead:
        failure = conflict_failure(copy.arrival.job_id, found.known, found.mine)
        entry = failure.to_dict() | {"at": now(), "attempt": 0, "worker": ""}
        with database.begin() as session:
            store.fence.set_state(session, copy.key, FenceState.DEAD)
            more = {"attempts": 0, "deliveries": 1, "failures": [entry], "payload": None}
            letter = store.letters.write(session, copy.arrival, reason=Reason.conflict, **more)
        return Dead(Reason.conflict, 0, failure, letter)

    for name in ("deliver", "record"):
        patch.setattr(import_module(f"harness.process.{name}"), "record_conflict", record)


def a_replay_of_another_content_runs_as_the_first(patch: pytest.MonkeyPatch) -> None:
    usual: Any = Letter.arrival.fget  # type: ignore[attr-defined]

    def arrival(self: Letter) -> Any:
        return replace(usual(self), job_id=self.job_id.partition("#")[0])

    patch.setattr(Letter, "arrival", property(arrival))


VARIANTS: tuple[Break, ...] = (
    another_content_is_a_duplicate,
    another_content_is_written_over_the_first,
    a_replay_of_another_content_runs_as_the_first,
    verdict_without_the_fence,
    prune_without_a_look_at_the_inbox,
    a_retry_keeps_its_generation,
    a_producers_copy_takes_a_waiting_fence,
    a_relays_copy_takes_any_fence,
    deliveries_are_not_counted,
    success_leaves_the_letter_open,
    a_letter_leaves_the_row,
    a_replay_draws_no_generation,
)
