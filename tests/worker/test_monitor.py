"""What a monitor is told, played into Celery's own state keeper, which is the one that Flower shows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery.events.state import State

from harness.core.failure import Failure, Kind
from harness.core.outcome import Completed, Dead, Deferred, Duplicate, Outcome, Stale
from harness.core.reason import Reason
from harness.worker.monitor import GOES_ON, Event, event_of

BOOM = Failure(Kind.transient, "ValueError", "boom", "a traceback")
LOST = Failure(Kind.revoked, "Terminated", "terminated while it ran")


class Job:
    """One job, as the state keeper sees it."""

    def __init__(self) -> None:
        self.state, self.clock = State(), 0

    def tell(self, event: Event) -> None:
        self.clock += 1
        about: dict[str, Any] = {"hostname": "w", "timestamp": self.clock, "local_received": self.clock}
        self.state.event({"type": event.type, "uuid": "j", "clock": self.clock, **about, **event.fields})

    def delivered(self, outcome: Outcome, *, replay: bool = False) -> Any:
        for event in (*([GOES_ON] if replay else []), Event("task-received"), Event("task-started")):
            self.tell(event)
        error = ValueError("boom") if isinstance(outcome, (Dead, Deferred)) else None
        self.tell(event_of(outcome, error, "7" if isinstance(outcome, Completed) else "", 0.1))
        return self.state.tasks["j"]


DEFERRED, DEAD = Deferred(1, 30.0, BOOM, True), Dead(Reason.exhausted, 5, BOOM, 1)


@pytest.mark.parametrize(
    ("deliveries", "state"),
    [
        ([Completed(7)], "SUCCESS"),
        ([Completed(7), Duplicate()], "SUCCESS"),
        ([DEFERRED], "RETRY"),
        ([DEFERRED, Stale()], "RETRY"),
        ([DEFERRED, Completed(7)], "SUCCESS"),
        ([DEFERRED, DEAD], "FAILURE"),
        ([DEAD, Stale(dead=True)], "FAILURE"),
        ([Stale()], "RETRY"),
        ([Stale(dead=True)], "FAILURE"),
        ([Dead(Reason.expired, 1, BOOM, 1)], "REVOKED"),
        ([DEFERRED, Dead(Reason.revoked, 1, LOST, 1)], "REVOKED"),
    ],
)
def test_the_state_is_that_of_the_row(deliveries: list[Outcome], state: str) -> None:
    job = Job()
    for outcome in deliveries:
        shown = job.delivered(outcome)
    assert shown.state == state
    if any(isinstance(outcome, (Dead, Deferred)) for outcome in deliveries):
        assert shown.exception == "ValueError('boom')", "a copy that does not know it leaves it"
    if state == "SUCCESS":
        assert shown.result == "7", "a duplicate leaves the first run's"


@pytest.mark.parametrize("dead", [DEAD, Dead(Reason.expired, 1, BOOM, 1), Dead(Reason.revoked, 1, LOST, 1)])
def test_a_replay_takes_it_back(dead: Dead) -> None:
    for outcome, state in ((DEFERRED, "RETRY"), (Completed(7), "SUCCESS"), (DEAD, "FAILURE")):
        job = Job()
        job.delivered(dead)
        assert job.delivered(outcome, replay=True).state == state
    job.delivered(dead)
    job.tell(GOES_ON)
    job.tell(Event("task-received"))
    assert job.state.tasks["j"].state == "RECEIVED"


def test_when_it_is_tried_again() -> None:
    told = event_of(DEFERRED, None, "", 0.0).fields["eta"]
    assert abs(datetime.fromisoformat(told) - datetime.now(UTC) - timedelta(seconds=30)) < timedelta(seconds=20)
    assert event_of(Deferred(1, 1e15, BOOM, True), None, "", 0.0).fields["eta"] is None


def test_an_error_that_has_no_text() -> None:
    class Mute(Exception):
        def __repr__(self) -> str:
            raise RuntimeError

    assert event_of(DEAD, Mute(), "", 0.0).fields["exception"] == "ValueError"
    assert len(event_of(DEAD, ValueError("x" * 5000), "", 0.0).fields["exception"].encode()) <= 1024
