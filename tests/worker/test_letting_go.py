"""Which rows the relay hands over once: those of tasks that no worker knew, and not those of jobs that were tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from celery import Celery
from kombu import Queue

from harness import Harness
from harness.core.failure import Failure, Kind
from harness.core.message import Message
from harness.core.reason import Reason
from harness.store.inbox import Arrival
from harness.store.processed_jobs import FenceState, Key
from harness.worker.relaying import relay_of

TASK = "became_a_job"
KEY = Key("j", f"tests/{TASK}")


class Old:
    """The relay of a release in which the task is a plain one."""

    def __init__(self, broker: str, database: str) -> None:
        self.app = Celery("old", broker=broker, set_as_current=False)
        self.harness = Harness(self.app, service="tests", database_url=database)

        @self.app.task(name=TASK, shared=False)  # type: ignore[untyped-decorator]
        def plain() -> None: ...

        self.app.finalize()
        with self.app.connection_for_write() as connection:
            Queue("jobs")(connection.default_channel).declare()

    def put(self, kinds: Sequence[Kind], fence: FenceState = FenceState.WAITING, letter: Reason | None = None) -> None:
        store = self.harness.store
        message = Message(b"[[],{},{}]", "application/json", "utf-8", {"task": TASK, "id": "j"}, {}, "jobs")
        arrival = Arrival("tests", KEY.consumer, TASK, KEY.job_id, message)
        failures = [_failure(kind) for kind in kinds]
        with self.harness.database.begin() as session:
            assert store.fence.take(session, KEY, fence, relayed=False, digest=None, wait_ms=1000)
            number = None
            if letter is not None:
                told = [_failure(Kind.transient)]
                number = store.letters.write(
                    session, arrival, reason=letter, attempts=1, deliveries=1, failures=told, payload=None
                )
            store.inbox.add(session, arrival, failures=failures, attempts=len(failures), letter_id=number)

    def relayed(self) -> tuple[bool, FenceState | None]:
        """After one step of the relay: is the row there, and the fence?"""
        assert relay_of(self.harness).step() == 1
        with self.harness.database.begin() as session:
            fence = self.harness.store.fence.look(session, KEY)
            return self.harness.store.inbox.find(session, KEY) is not None, fence.state if fence else None


def _failure(kind: Kind) -> dict[str, Any]:
    return Failure(kind, "E", "").to_dict()


@pytest.fixture
def old(redis_url: str, database: str) -> Old:
    return Old(redis_url, database)


@pytest.mark.parametrize("kinds", [[Kind.transient], [Kind.unknown_task, Kind.transient], []])
def test_a_job_that_was_tried_stays(old: Old, kinds: list[Kind]) -> None:
    """A newer worker has put it in: a plain task of the old release would take it, and fail without a word."""
    old.put(kinds)
    assert old.relayed() == (True, FenceState.WAITING)


def test_its_replay_stays(old: Old) -> None:
    old.put([], letter=Reason.exhausted)
    assert old.relayed() == (True, FenceState.WAITING)


def test_a_claim_stays(old: Old) -> None:
    """Without its fence the call of an external job would be made again."""
    old.put([Kind.unknown_task], fence=FenceState.CLAIMED)
    assert old.relayed() == (True, FenceState.CLAIMED)


@pytest.mark.parametrize("letter", [None, Reason.unknown_task])
def test_what_no_worker_knew_goes(old: Old, letter: Reason | None) -> None:
    old.put([] if letter else [Kind.unknown_task], letter=letter)
    assert old.relayed() == (False, None)
