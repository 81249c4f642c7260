"""When a job is tried again, and when it is given up."""

import doctest
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tenacity import RetryCallState
from tenacity.stop import stop_after_attempt, stop_after_delay, stop_before_delay, stop_never
from tenacity.wait import wait_fixed, wait_random, wait_random_exponential

from harness.core import wait as wait_module
from harness.core.errors import ConfigError
from harness.core.failure import Failure, Kind
from harness.core.policy import LONGEST_DELAY, GiveUp, Policy, Retry, backoff, decide
from harness.core.reason import Reason

HOPELESS = {
    Kind.permanent: Reason.permanent,
    Kind.invalid: Reason.invalid_payload,
    Kind.undecodable: Reason.undecodable,
    Kind.expired: Reason.expired,
    Kind.revoked: Reason.revoked,
    Kind.too_old: Reason.too_old,
    Kind.conflict: Reason.conflict,
    Kind.broker: Reason.broker,
    Kind.outcome_unknown: Reason.outcome_unknown,
}
TRIED_AGAIN = {
    Kind.transient: Reason.exhausted,
    Kind.retry_later: Reason.exhausted,
    Kind.crashed: Reason.crashed,
    Kind.timed_out: Reason.timed_out,
    Kind.unknown_task: Reason.unknown_task,
}


def failed(kind: Kind = Kind.transient, delay: float | None = None) -> Failure:
    return Failure(kind, "builtins.OSError", "down", delay=delay)


def delay_of(decision: Retry | GiveUp) -> float:
    assert isinstance(decision, Retry)
    return decision.delay


def test_the_examples_in_the_docstrings_hold() -> None:
    result = doctest.testmod(wait_module)
    assert result.attempted >= 3
    assert result.failed == 0


def test_every_kind_is_decided() -> None:
    assert set(HOPELESS) | set(TRIED_AGAIN) | {Kind.not_ready} == set(Kind)


@pytest.mark.parametrize(
    ("attempt", "low", "high"),
    [(1, 30, 60), (2, 60, 120), (3, 120, 240), (4, 240, 480)],
)
def test_by_default_a_delay_lies_in_the_window_of_its_try(attempt: int, low: float, high: float) -> None:
    policy = Policy()
    assert isinstance(policy.wait, backoff)
    assert policy.wait.window(attempt) == (low, high)
    delays = {delay_of(decide(failed(), attempt, policy)) for _ in range(200)}
    assert low <= min(delays) < low + (high - low) / 4
    assert high - (high - low) / 4 < max(delays) <= high


def test_at_the_cap_the_window_is_its_upper_half() -> None:
    wait = backoff(base=30, cap=3600)
    assert wait.window(6) == (960, 1920)
    assert wait.window(7) == wait.window(8) == wait.window(100_000) == (1800, 3600)


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6), st.integers(1, 10_000))
def test_windows_never_shrink_and_keep_to_the_cap(base: float, cap: float, n: int) -> None:
    wait = backoff(base, cap)
    low, high = wait.window(n)
    assert 0 < low == high / 2
    assert high <= min(cap, wait.window(n + 1)[1])


@pytest.mark.parametrize("numbers", [(0, 1), (1, 0), (-1, 1), (float("nan"), 1), (1, float("inf"))])
def test_a_backoff_takes_positive_seconds_only(numbers: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match="positive number of seconds"):
        backoff(*numbers)


@pytest.mark.parametrize(("kind", "reason"), TRIED_AGAIN.items())
def test_five_tries_in_all_then_the_reason_of_the_last(kind: Kind, reason: Reason) -> None:
    policy = Policy()
    decisions = [decide(failed(kind), attempt, policy) for attempt in range(1, 6)]
    assert all(isinstance(decision, Retry) and decision.spends_try for decision in decisions[:4])
    assert decisions[4] == GiveUp(reason)
    assert decide(failed(kind), 6, policy) == GiveUp(reason)


@pytest.mark.parametrize(("kind", "reason"), HOPELESS.items())
def test_the_hopeless_is_given_up_at_the_first_try(kind: Kind, reason: Reason) -> None:
    assert decide(failed(kind), 1, Policy()) == GiveUp(reason)


def test_an_unknown_task_waits_for_the_end_of_a_deploy_only() -> None:
    delays = [delay_of(decide(failed(Kind.unknown_task), n, Policy())) for n in range(1, 5)]
    windows = [(5, 10), (10, 20), (20, 40), (30, 60)]
    assert all(low <= delay <= high for delay, (low, high) in zip(delays, windows, strict=True))


def test_the_handlers_own_delay_counts_and_spends_a_try() -> None:
    assert decide(failed(Kind.retry_later, 7.5), 1, Policy()) == Retry(7.5, spends_try=True)
    assert decide(failed(Kind.retry_later, 7.5), 5, Policy()) == GiveUp(Reason.exhausted)


def test_not_ready_waits_ever_longer_whatever_the_try_until_its_deadline() -> None:
    policy = Policy()
    early = decide(failed(Kind.not_ready), 99, policy, waited=0.0)
    assert isinstance(early, Retry)
    assert not early.spends_try
    assert 5 <= early.delay <= 10
    assert 150 <= delay_of(decide(failed(Kind.not_ready), 1, policy, waited=7200.0)) <= 300
    # The last wait ends at the deadline, not after it; and it is no hot loop.
    assert delay_of(decide(failed(Kind.not_ready), 1, policy, waited=86_390.0)) == pytest.approx(10.0)
    assert delay_of(decide(failed(Kind.not_ready), 1, policy, waited=86_399.99)) == 1.0
    assert decide(failed(Kind.not_ready), 1, policy, waited=86_400.0) == GiveUp(Reason.not_ready)


def test_not_ready_with_a_wait_of_nothing_still_decides() -> None:
    policy = Policy(not_ready_wait=wait_fixed(0), not_ready_deadline=10)
    assert decide(failed(Kind.not_ready), 1, policy, waited=5.0) == Retry(1.0, spends_try=False)


def test_an_override_needs_a_reason() -> None:
    for override in ({"stop": stop_after_attempt(3)}, {"wait": wait_fixed(1)}, {"wait": backoff(1, 2)}):
        with pytest.raises(ConfigError, match="without a reason"):
            Policy(**override)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="without a reason"):
            Policy(**override, reason="  ")  # type: ignore[arg-type]
        assert Policy(**override, reason="a test").reason == "a test"  # type: ignore[arg-type]


def test_the_default_said_aloud_is_no_override() -> None:
    assert Policy(stop=stop_after_attempt(5), wait=backoff(base=30, cap=3600)).tries == 5
    assert Policy(not_ready_deadline=60).not_ready_deadline == 60


def test_a_policy_is_checked_when_it_is_made() -> None:
    with pytest.raises(ConfigError, match="stop=5"):
        Policy(stop=5, reason="a test")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="not_ready_deadline"):
        Policy(not_ready_deadline=-1)


def test_tries_and_the_longest_window() -> None:
    assert (Policy().tries, Policy().longest_window()) == (5, 60 + 120 + 240 + 480)
    once = Policy(stop=stop_after_attempt(1), reason="a test")
    assert (once.tries, once.longest_window()) == (1, 0)
    for_ever = Policy(stop=stop_never, reason="a test")
    assert (for_ever.tries, for_ever.longest_window()) == (None, None)
    summed = Policy(stop=stop_after_attempt(3), wait=wait_fixed(10) + wait_random(0, 5), reason="a test")
    assert summed.longest_window() == 30
    drawn = Policy(stop=stop_after_attempt(4), wait=wait_random_exponential(min=5, max=60), reason="a test")
    assert drawn.longest_window() == 5 + 5 + 5


@given(st.integers(1, 30), st.floats(0.1, 1000), st.floats(0.1, 1e5))
def test_no_course_is_longer_than_the_longest_window(tries: int, base: float, cap: float) -> None:
    policy = Policy(stop=stop_after_attempt(tries), wait=backoff(base, cap), reason="a test")
    course = [decide(failed(), attempt, policy) for attempt in range(1, tries + 1)]
    longest = policy.longest_window()
    assert longest is not None
    assert sum(delay_of(decision) for decision in course[:-1]) <= longest * (1 + 1e-9)
    assert course[-1] == GiveUp(Reason.exhausted)


def test_tenacitys_stops_by_time_see_how_long_the_job_waits() -> None:
    policy = Policy(stop=stop_after_delay(600), wait=wait_fixed(100), reason="a test")
    assert decide(failed(), 1, policy, waited=599.0) == Retry(100, spends_try=True)
    assert decide(failed(), 1, policy, waited=600.0) == GiveUp(Reason.exhausted)
    assert (policy.tries, policy.longest_window()) == (7, 600)
    policy = Policy(stop=stop_before_delay(600), wait=wait_fixed(100), reason="a test")
    assert decide(failed(), 1, policy, waited=499.0) == Retry(100, spends_try=True)
    assert decide(failed(), 1, policy, waited=500.0) == GiveUp(Reason.exhausted)


def test_a_wait_of_ones_own_sees_the_try_and_the_error() -> None:
    seen = []

    def wait(state: RetryCallState) -> float:
        assert state.outcome is not None
        seen.append((state.attempt_number, str(state.outcome.exception())))
        return 3

    assert decide(failed(), 2, Policy(wait=wait, reason="a test")) == Retry(3.0, spends_try=True)
    assert seen == [(2, "builtins.OSError: down")]


def broken(state: RetryCallState) -> float:
    raise LookupError


def test_a_faulty_policy_falls_back_to_the_default() -> None:
    policy = Policy(stop=broken, wait=broken, not_ready_wait=broken, reason="a test")  # type: ignore[arg-type]
    assert 60 <= delay_of(decide(failed(), 2, policy)) <= 120
    assert decide(failed(), 5, policy) == GiveUp(Reason.exhausted)
    assert 5 <= delay_of(decide(failed(Kind.not_ready), 1, policy)) <= 10


@pytest.mark.parametrize(
    ("answer", "low", "high"),
    [(float("nan"), 30, 60), (-5, 0, 0), (float("inf"), LONGEST_DELAY, LONGEST_DELAY)],
)
def test_a_database_can_add_any_delay(answer: float, low: float, high: float) -> None:
    policy = Policy(wait=lambda state: answer, reason="a test")
    assert low <= delay_of(decide(failed(), 1, policy)) <= high


def test_the_delays_are_spread() -> None:
    delays = sorted(delay_of(decide(failed(), 1, Policy())) for _ in range(500))
    assert max(after - before for before, after in pairwise(delays)) < 3
