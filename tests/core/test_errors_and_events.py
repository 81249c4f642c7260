"""Errors, failures, outcomes and events: the small values that pass between the layers."""

import dataclasses
import logging
import pickle
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core import errors
from harness.core.events import Event, Events, JobCompleted, JobDead, Relayed
from harness.core.failure import MESSAGE_BYTES, TRACEBACK_BYTES, Failure, Kind
from harness.core.outcome import Completed, Dead, Deferred, Duplicate, Outcome, Stale
from harness.core.reason import Reason
from harness.core.text import bounded, clean

ALL_TEXT = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    "error",
    [
        errors.Permanent("closed"),
        errors.RetryLater(timedelta(minutes=2), "busy"),
        errors.RetryLater(5),
        errors.NotReady("no invoice yet"),
        errors.NotReady(),
        errors.InvalidPayload("wrong", [{"argument": "a", "type": "t", "message": "m"}]),
        errors.SignatureError("x"),
        errors.TransactionRefused("x"),
        errors.NotInAJob("x"),
        errors.ConfigError("x"),
        errors.Unrecorded("x"),
    ],
)
def test_errors_survive_pickling(error: errors.HarnessError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


@pytest.mark.parametrize(
    ("delay", "seconds"), [(5, 5.0), (0.5, 0.5), (timedelta(minutes=2), 120.0), (-3, 0.0), (0, 0.0)]
)
def test_a_delay_is_in_seconds(delay: float | timedelta, seconds: float) -> None:
    error = errors.RetryLater(delay)
    assert error.delay == seconds
    assert isinstance(error.delay, float)


@pytest.mark.parametrize("delay", [float("nan"), float("inf"), "5", None, True])
def test_a_delay_that_is_no_time_is_a_fault_of_the_program(delay: float) -> None:
    with pytest.raises(errors.UsageError, match="finite number of seconds"):
        errors.RetryLater(delay)


def test_invalid_payload_has_no_subclasses() -> None:
    with pytest.raises(TypeError, match="raise Permanent"):
        type("Mine", (errors.InvalidPayload,), {})


def test_the_stored_words_stay_as_they_are() -> None:
    assert set(Reason) == {
        "invalid_payload", "undecodable", "unknown_task", "permanent", "exhausted", "crashed", "timed_out",
        "not_ready", "too_old", "conflict", "expired", "revoked", "outcome_unknown", "broker",
    }  # fmt: skip
    assert all(str(reason) == reason.name for reason in Reason)
    assert all(str(kind) == kind.name for kind in Kind)


def test_a_failure_as_json() -> None:
    failure = Failure(Kind.transient, "OSError", "down", "Traceback …", "f00", delay=5.0)
    assert failure.to_dict() == {
        "kind": "transient",
        "error_type": "OSError",
        "message": "down",
        "traceback": "Traceback …",
        "fingerprint": "f00",
    }
    assert type(failure.to_dict()["kind"]) is str


def test_a_failures_texts_are_cut_and_cleaned_on_the_way_in() -> None:
    failure = Failure(Kind.transient, "e" * 1000, "ü\0\ud800" * 5000, "first\n" + "x" * 50_000 + "\nlast")
    assert failure.error_type == "e" * 252 + "…"  # 255 bytes
    assert len(failure.message.encode()) <= MESSAGE_BYTES
    assert "\0" not in failure.message
    assert len(failure.traceback.encode()) <= TRACEBACK_BYTES
    assert failure.traceback.startswith("first\n")
    assert failure.traceback.endswith("\nlast")
    assert dataclasses.replace(failure) == failure
    assert pickle.loads(pickle.dumps(failure)) == failure


@given(ALL_TEXT, st.integers(0, 60), st.booleans())
def test_bounded_text_is_within_its_bound(text: str, limit: int, keep_end: bool) -> None:
    cut = bounded(text, limit, keep_end=keep_end)
    assert len(cut.encode("utf-8")) <= limit
    assert "\0" not in cut
    if len(clean(text).encode()) <= limit:
        assert cut == clean(text)


def test_clean_text_is_plain_text() -> None:
    class Mine(str):
        __slots__ = ()

    assert type(clean(Mine("x"))) is str
    assert clean("a\0b\udfff€😀") == "a\ufffdb\ufffd€😀"


def test_outcomes_are_values_that_travel() -> None:
    failure = Failure(Kind.transient, "OSError", "down")
    outcomes: list[Outcome] = [
        Completed([1]), Duplicate(), Stale(), Deferred(1, 30.0, failure, True),
        Dead(Reason.exhausted, 5, failure, 7),
    ]  # fmt: skip
    assert pickle.loads(pickle.dumps(outcomes)) == outcomes


def completed() -> JobCompleted:
    return JobCompleted(service="billing", consumer="billing/credit", job_id="1", seconds=0.1)


def test_events_reach_every_subscriber_in_order() -> None:
    bus, seen = Events(), list[tuple[str, Event]]()

    def first(event: Event) -> None:
        seen.append(("first", event))

    bus.subscribe(first)
    bus.subscribe(lambda event: seen.append(("second", event)))
    bus.subscribe(first)
    event = completed()
    bus.emit(event)
    assert seen == [("first", event), ("second", event)]


def test_a_subscriber_that_raises_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    bus, seen = Events(), list[Event]()

    def broken(event: Event) -> None:
        raise LookupError("dashboard is down")

    bus.subscribe(broken)
    bus.subscribe(seen.append)
    with caplog.at_level(logging.ERROR):
        bus.emit(Relayed(3))
    assert seen == [Relayed(count=3)]
    assert "dashboard is down" in caplog.text
    assert "Relayed" in caplog.text


def test_an_event_cannot_be_changed_by_a_subscriber() -> None:
    event = completed()
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.job_id = "2"  # type: ignore[misc]
    assert issubclass(JobDead, Event)
