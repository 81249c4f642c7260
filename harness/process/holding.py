"""A message is held while PostgreSQL is away: the same step again and again, and no try of the job is spent by that."""

import logging
from collections.abc import Callable
from itertools import chain, repeat

import tenacity

from harness.core.errors import Unrecorded
from harness.core.outcome import Outcome
from harness.process.spec import Limits
from harness.store.database import DatabaseAway

log = logging.getLogger("harness")

#: Seconds to hold the message while PostgreSQL is away; asked when that is so.
Patience = Callable[[], float]
Step = Callable[[], Outcome]


def holding(limits: Limits, step: Step, patience: Patience | None = None) -> Outcome:
    """Repeat `step` while the database is away. Raises Unrecorded when it stays away for too long."""
    try:
        return step()
    except DatabaseAway as error:
        away = error
    return _held(patience() if patience else limits.outage_hold, step, away)


def _held(seconds: float, step: Step, away: DatabaseAway) -> Outcome:
    tries = chain([_raising(away)], repeat(step))
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(DatabaseAway),
        wait=tenacity.wait_random_exponential(multiplier=0.1, max=3),
        stop=tenacity.stop_after_delay(seconds),
        before_sleep=_say_away,
    )
    try:
        return retrying(lambda: next(tries)())
    except tenacity.RetryError as error:
        cause = error.last_attempt.exception()
        raise Unrecorded(
            f"PostgreSQL has been away for {seconds:g} s ({cause}); the message is not acknowledged."
        ) from cause


def _raising(error: Exception) -> Step:
    def step() -> Outcome:
        raise error

    return step


def _say_away(state: tenacity.RetryCallState) -> None:
    if state.attempt_number == 1 and state.outcome is not None:
        log.warning("database away, holding the message: %s", state.outcome.exception())
