"""A job's outcome is committed and the broker or the result backend is away: what comes after the job is held."""

import logging
import struct
from collections.abc import Callable
from typing import TypeVar

import tenacity
from amqp.exceptions import AMQPNotImplementedError, FrameSyntaxError, NotFound, PreconditionFailed
from billiard.exceptions import SoftTimeLimitExceeded
from celery.exceptions import ImproperlyConfigured
from kombu.exceptions import SerializationError, SerializerNotInstalled
from redis.exceptions import DataError

log = logging.getLogger("harness")
T = TypeVar("T")

#: What no later try can mend: the step itself can't be sent. Anything else counts as an outage.
HOPELESS = (
    SerializationError,
    SerializerNotInstalled,
    TypeError,
    ValueError,
    LookupError,
    ArithmeticError,
    AssertionError,
    RecursionError,
    NotImplementedError,
    ImproperlyConfigured,
    # The broker's protocol, or the result backend's, has no form for it.
    struct.error,
    FrameSyntaxError,
    DataError,
)
#: What may pass, or may be the step's own fault: it is held as in an outage, and then given up. Else its message would
#: come again for ever. kombu has an AttributeError for a connection that is no more, and anything has it for a step of
#: the wrong shape; the others are the broker's answer to what a step asks of it.
GIVEN_UP = (AttributeError, NotFound, PreconditionFailed, AMQPNotImplementedError)


class Unpublished(BaseException):
    """What comes after a job was not sent: its message must come again.

    No Exception, for Celery's code in between takes those for the step's own failure and gives it up for good.
    """


def hold(do: Callable[[], T], seconds: float, what: str) -> T:
    """What `do` returns, called until it succeeds. Raises Unpublished after `seconds`, and at a soft time limit."""
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(_may_pass),
        wait=tenacity.wait_random_exponential(multiplier=0.1, max=3),
        stop=tenacity.stop_after_delay(seconds),
        before_sleep=lambda state: _say(state, what),
    )
    try:
        return retrying(do)
    except tenacity.RetryError as error:
        cause = error.last_attempt.exception()
        if isinstance(cause, GIVEN_UP):
            raise TypeError(f"{what} can't be sent: {cause}") from cause
        raise Unpublished(f"{what} could not be sent for {seconds:g} s ({type(cause).__name__})") from cause
    except SoftTimeLimitExceeded as error:
        raise Unpublished(f"{what} could not be sent before the soft time limit") from error


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, (*HOPELESS, SoftTimeLimitExceeded))


def _say(state: tenacity.RetryCallState, what: str) -> None:
    if state.attempt_number == 1 and state.outcome is not None:
        # The type alone: a broker's error may quote the message.
        log.warning("%s can't be sent now, holding it: %s", what, type(state.outcome.exception()).__name__)
