"""Jobs of a key with external effects: the claim lets the key's lock go, and the key is not free all the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.core.outcome import Completed, Dead, Deferred
from harness.core.reason import Reason
from harness.process import JobSpec
from harness.process.external import Outside
from harness.process.spec import External
from harness.store.dispatch import Caps
from tests.order.lane import BLOCKS, GOES_ON, LIMITS, Lane
from tests.order.test_turns import aside, dead

EXTERNAL = External(limit=20.0, margin=10.0)
CALLS = replace(GOES_ON, external=EXTERNAL)
CALLS_AND_BLOCKS = replace(BLOCKS, external=EXTERNAL)
SPECS = [pytest.param(GOES_ON, id="plain"), pytest.param(CALLS, id="external")]


def with_a_letter(lane: Lane) -> int:
    """Three jobs of a key: a is dead, b is with the broker."""
    lane.put("a", "b", "c")
    lane.relay()
    letter = dead(lane.run("a", fail=KeyError("no")))
    assert lane.relay() == ["b"]
    return letter


def dies_at_its_call(lane: Lane, name: str) -> None:
    """Its claim is committed, its handler was called, and nothing is heard of it any more."""
    assert Outside(lane.database, lane.store, lane.copy(name), EXTERNAL, LIMITS, None)._claim() is None


def time_is_over(lane: Lane, name: str) -> None:
    lane.all("UPDATE core.inbox SET available_at = now(), leased_until = now() WHERE job_id = :id", id=name)


@pytest.mark.parametrize("older", SPECS)
def test_a_replay_is_not_sent_beside_a_claimed_job(lane: Lane, older: JobSpec) -> None:
    letter = with_a_letter(lane)

    def meanwhile() -> None:
        lane.replay(letter)
        assert (lane.relay(), lane.mend(), lane.relay()) == ([], 0, [])

    assert isinstance(lane.run("b", then=meanwhile, spec=CALLS), Completed)
    assert lane.relay() == ["a"]
    assert isinstance(lane.run("a", spec=older), Completed)
    assert lane.relay() == ["c"]
    assert lane.ran == ["a", "b", "a"]


@pytest.mark.parametrize("older", SPECS)
def test_a_copy_that_was_sent_before_the_claim_stands_aside(lane: Lane, older: JobSpec) -> None:
    letter = with_a_letter(lane)

    def meanwhile() -> None:
        lane.replay(letter)
        found = lane.row("a")
        assert found is not None
        lane.sent["a"] = found  # by a relay that looked before the claim was committed
        assert aside(lane.run("a", spec=older))
        assert lane.relay() == []

    assert isinstance(lane.run("b", then=meanwhile, spec=CALLS), Completed)
    assert lane.relay() == ["a"]
    assert (lane.ran, lane.row("a").attempts) == (["a", "b"], 0)  # type: ignore[union-attr]


def test_a_younger_one_does_not_pass_a_claimed_job(lane: Lane) -> None:
    lane.put("a", "b")
    lane.put("x", key="other")
    assert lane.relay() == ["a", "x"]

    def meanwhile() -> None:
        assert (lane.relay(), lane.mend(), lane.relay()) == ([], 0, [])
        assert isinstance(lane.run("x", spec=CALLS), Completed), "another key"

    assert isinstance(lane.run("a", then=meanwhile, spec=CALLS), Completed)
    assert lane.relay() == ["b"]


def test_a_replay_goes_first_when_the_claimed_one_has_to_wait_for_its_next_try(lane: Lane) -> None:
    letter = with_a_letter(lane)
    assert isinstance(lane.run("b", then=lambda: lane.replay(letter), spec=CALLS, fail=ValueError("busy")), Deferred)
    for name in ("a", "b", "c"):
        assert lane.relay() == [name]
        assert isinstance(lane.run(name, spec=CALLS), Completed)


@pytest.mark.parametrize("spec", [CALLS, CALLS_AND_BLOCKS], ids=["goes on", "blocks"])
def test_an_uncompleted_claim_holds_its_key_until_its_letter_is_there(lane: Lane, spec: JobSpec) -> None:
    lane.put("a", "b")
    lane.relay()
    dies_at_its_call(lane, "a")
    assert (lane.relay(), lane.mend(), lane.relay()) == ([], 0, [])
    time_is_over(lane, "a")
    assert lane.relay() == ["a"]
    outcome = lane.run("a", spec=spec)
    assert isinstance(outcome, Dead)
    assert outcome.reason is Reason.outcome_unknown
    if spec is CALLS_AND_BLOCKS:
        assert (lane.relay(), lane.mend(), lane.relay()) == ([], 0, [])
        lane.discard(outcome.letter_id)
    assert lane.relay() == ["b"]
    assert lane.ran == [], "nobody called a again"


@pytest.mark.parametrize("spec", [CALLS, CALLS_AND_BLOCKS], ids=["goes on", "blocks"])
def test_the_letter_of_a_claim_whose_time_is_over_goes_before_a_replay(lane: Lane, spec: JobSpec) -> None:
    letter = with_a_letter(lane)
    dies_at_its_call(lane, "b")
    lane.replay(letter)
    assert (lane.relay(), lane.mend(), lane.relay()) == ([], 0, [])
    time_is_over(lane, "b")
    # Only the letter of b is to be written, which needs no turn: it would wait for as long as a does.
    assert lane.relay() == ["b"]
    unknown = dead(lane.run("b", spec=spec))
    assert lane.relay() == ["a"]
    assert isinstance(lane.run("a", spec=spec), Completed)
    if spec is CALLS_AND_BLOCKS:
        assert lane.relay() == []
        lane.discard(unknown)
    assert lane.relay() == ["c"]
    assert lane.ran == ["a", "a"]


@pytest.mark.parametrize("at_work", [False, True])
def test_the_letter_of_a_claim_waits_for_nobody(lane: Lane, at_work: bool) -> None:
    """For no older job that waits for its next try, nor for one that is at work."""
    letter = with_a_letter(lane)
    dies_at_its_call(lane, "b")
    lane.replay(letter)
    found = lane.row("a")
    assert found is not None
    lane.sent["a"] = found

    def file() -> None:
        time_is_over(lane, "b")
        assert lane.relay() == ["b"]
        dead(lane.run("b", spec=CALLS))

    if at_work:
        time_is_over(lane, "b")
        assert isinstance(lane.run("a", then=file, spec=CALLS), Completed)
    else:
        lane.all("UPDATE core.inbox SET available_at = now() + interval '1 day' WHERE job_id = 'a'")
        file()
    assert (lane.row("b"), lane.ran) == (None, ["a", "a"] if at_work else ["a"])


def test_a_claimed_job_is_in_flight(lane: Lane) -> None:
    lane.put("a", key=None)
    lane.put("b", key=None)
    caps = Caps({"s/t": 1})
    assert lane.relay(caps=caps) == ["a"]

    def meanwhile() -> None:
        assert lane.relay(caps=caps) == []

    assert isinstance(lane.run("a", then=meanwhile, spec=CALLS), Completed)
    assert lane.relay(caps=caps) == ["b"]
