"""When to try again, and when to give up: a pure decision, in tenacity's words."""

import math
from dataclasses import dataclass
from typing import Any, cast

from tenacity import Future, RetryCallState
from tenacity.stop import StopBaseT, stop_after_attempt
from tenacity.wait import WaitBaseT, wait_base

from harness.core.errors import ConfigError, JobError
from harness.core.failure import Failure, Kind
from harness.core.reason import Reason
from harness.core.wait import backoff, upper_wait

__all__ = ["LONGEST_DELAY", "GiveUp", "Policy", "Retry", "backoff", "decide"]

LONGEST_DELAY = 366 * 86400.0
"""No single wait is longer than this, in seconds: the database must be able to add it to a date."""

_MOST_TRIES = 1000


_STOP = stop_after_attempt(5)
_WAIT = backoff(base=30, cap=3600)
_NOT_READY_WAIT = backoff(base=5, cap=300)
_UNKNOWN_TASK_WAIT = backoff(base=5, cap=60)  # a deploy that is under way ends soon


@dataclass(frozen=True)
class Policy:
    """How often and how long apart a job is tried.

    `stop` and `wait` are tenacity's (`stop_after_attempt(8)`, `wait_fixed(10)`, a function of a
    `RetryCallState`); to override one, say why in `reason`, or `ConfigError` is raised. `not_ready_wait` and
    `not_ready_deadline` (seconds) govern `NotReady`, which spends no try.
    """

    stop: StopBaseT = _STOP
    wait: WaitBaseT = _WAIT
    not_ready_wait: WaitBaseT = _NOT_READY_WAIT
    not_ready_deadline: float = 86400.0
    reason: str = ""

    def __post_init__(self) -> None:
        for name in ("stop", "wait", "not_ready_wait"):
            value = getattr(self, name)
            if not callable(value):
                raise ConfigError(f"Policy: {name}={value!r} must be one of tenacity's, or a function.")
        if math.isnan(self.not_ready_deadline) or self.not_ready_deadline < 0:
            raise ConfigError(f"Policy: not_ready_deadline={self.not_ready_deadline!r} must not be negative.")
        if not (self.reason.strip() or (_same(self.stop, _STOP) and _same(self.wait, _WAIT))):
            raise ConfigError(
                "Policy: stop or wait is overridden without a reason. Whoever reads it later must know why "
                'this job differs from others. Say so: Policy(stop=…, reason="its provider sleeps at night").'
            )

    @property
    def tries(self) -> int | None:
        """How many tries a job has in all, if each wait is as long as it can be; None if they do not end."""
        return self._longest_course()[0]

    def longest_window(self) -> float | None:
        """The longest that all the waits can add up to, in seconds; None if unbounded."""
        return self._longest_course()[1]

    def _longest_course(self) -> tuple[int, float] | tuple[None, None]:
        elapsed = 0.0
        for attempt in range(1, _MOST_TRIES + 1):
            state = _state(attempt, elapsed)
            state.upcoming_sleep = upper_wait(self.wait, state)
            if self.stop(state):
                return attempt, elapsed
            elapsed += state.upcoming_sleep
        return None, None


def _same(one: object, other: object) -> bool:
    alike = type(one) is type(other) and getattr(one, "__dict__", 1) == getattr(other, "__dict__", 2)
    return one is other or alike


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after `delay` seconds. A wait that spends no try leaves the count as it was."""

    delay: float
    spends_try: bool


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No further try; the job is dead for this reason."""

    reason: Reason


_EXHAUSTED = {
    Kind.transient: Reason.exhausted,
    Kind.retry_later: Reason.exhausted,
    Kind.crashed: Reason.crashed,
    Kind.timed_out: Reason.timed_out,
    Kind.unknown_task: Reason.unknown_task,
}
_HOPELESS = {
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


def decide(failure: Failure, attempt: int, policy: Policy, waited: float = 0.0) -> Retry | GiveUp:
    """What becomes of a job whose try number `attempt` (from 1) ended in `failure`.

    `waited` is the number of seconds since the job began to wait (for `NotReady`: since it said so first), by the
    database's clock: `NotReady`'s deadline counts it, and so do the stops of tenacity that go by time. It looks at
    nothing else. A stop or wait that raises is replaced by the default one: a faulty policy must not cost the job its
    outcome.
    """
    if failure.kind in _HOPELESS:
        return GiveUp(_HOPELESS[failure.kind])
    if failure.kind is Kind.not_ready:
        return _decide_not_ready(failure, policy, max(0.0, waited))
    state = _state(attempt, waited, failure)
    wait = _UNKNOWN_TASK_WAIT if failure.kind is Kind.unknown_task else policy.wait
    state.upcoming_sleep = _delay(wait, state, failure, _WAIT)
    try:
        stop = bool(policy.stop(state))
    except Exception:
        stop = _STOP(state)
    return GiveUp(_EXHAUSTED[failure.kind]) if stop else Retry(state.upcoming_sleep, spends_try=True)


def _decide_not_ready(failure: Failure, policy: Policy, waited: float) -> Retry | GiveUp:
    left = policy.not_ready_deadline - waited
    if left <= 0:
        return GiveUp(Reason.not_ready)
    # These waits are not counted anywhere; the time that has passed tells how many there were, about.
    number, passed = 1, 0.0
    while number < _MOST_TRIES:
        passed += _upper(policy.not_ready_wait, _state(number, passed), _NOT_READY_WAIT)
        if passed > waited:
            break
        number += 1
    delay = _delay(policy.not_ready_wait, _state(number, waited, failure), failure, _NOT_READY_WAIT)
    return Retry(max(1.0, min(delay, left)), spends_try=False)


def _upper(wait: WaitBaseT, state: RetryCallState, default: wait_base) -> float:
    try:
        return upper_wait(wait, state)
    except Exception:
        return upper_wait(default, state)


def _delay(wait: WaitBaseT, state: RetryCallState, failure: Failure, default: wait_base) -> float:
    """The delay that the handler asked for, else the policy's; always a number that the database can use."""
    delay = failure.delay
    if delay is None:
        try:
            delay = float(wait(state))
        except Exception:
            delay = default(state)
    return default(state) if math.isnan(delay) else min(max(0.0, delay), LONGEST_DELAY)


def _state(attempt: int, waited: float, failure: Failure | None = None) -> RetryCallState:
    """What tenacity would show its stops and waits after this try."""
    state = RetryCallState(retry_object=cast(Any, None), fn=None, args=(), kwargs={})
    state.attempt_number = max(1, attempt)
    state.start_time, state.outcome_timestamp = 0.0, waited
    # A wait may look at the exception. The real one is gone by now: this one carries what is known of it.
    error = JobError(f"{failure.error_type}: {failure.message}" if failure else "")
    state.outcome = Future.construct(state.attempt_number, error, has_exception=True)
    return state
