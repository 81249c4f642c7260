"""A job's outcome is committed and the broker or the result backend is away: what comes after the job is held."""

import logging
import struct
from collections.abc import Callable
from typing import TypeVar

import tenacity
from amqp.exceptions import (
    AMQPNotImplementedError,
    ChannelError,
    ContentTooLarge,
    FrameError,
    FrameSyntaxError,
    InternalError,
    InvalidCommand,
    InvalidPath,
    MessageNacked,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
    UnexpectedFrame,
)
from billiard.exceptions import SoftTimeLimitExceeded
from celery import current_app
from celery.exceptions import ImproperlyConfigured
from kombu.exceptions import OperationalError, SerializationError, SerializerNotInstalled
from redis.exceptions import DataError, ResponseError

log = logging.getLogger("harness")
T = TypeVar("T")


class NoRoute(Exception):
    """No queue takes a message, and the broker says nothing of it."""


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
#: What may pass, or may be the step's own fault: it is given up when the broker serves others meanwhile. Else its
#: message would come again for ever, and hold a process each time. kombu has an AttributeError for a connection that is
#: no more, and anything has it for a step of the wrong shape; the others are the broker's answer to what a step asks of
#: it.
GIVEN_UP = (
    AttributeError,
    MemoryError,
    NoRoute,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
    ContentTooLarge,
    InvalidPath,
    AMQPNotImplementedError,
    # With these RabbitMQ closes the connection: for a header or a property that it fails over, among others.
    FrameError,
    InvalidCommand,
    UnexpectedFrame,
    NotAllowed,
    InternalError,
)
#: AMQP's word for a message that no queue takes, in the code of a ChannelError.
NO_ROUTE = 312
#: A queue that is full says this of each message until it has room: that may pass, so it is held for as long as any
#: outage, but no message comes again for it.
_REFUSED = (MessageNacked,)
#: So often in a row, before the broker is looked at.
GIVEN_UP_AFTER = 4
#: What a Redis result backend says where a key that it needs holds something else: no later try finds it otherwise.
_WRONG_TYPE = "WRONGTYPE"


class CantBeSent(TypeError):
    """A step that the broker has refused again and again, while it took what others sent."""


class Incomplete(CantBeSent):
    """A step of which no message can be made, for something of it is not known."""


class Unpublished(BaseException):
    """What comes after a job was not sent: its message must come again.

    No Exception, for Celery's code in between takes those for the step's own failure and gives it up for good.
    """


def hold(do: Callable[[], T], seconds: float, what: str) -> T:
    """What `do` returns, called until it succeeds. Raises Unpublished after `seconds`, and at a soft time limit.

    Raises what is HOPELESS at once, and TypeError for what is the step's own fault by the look of the broker.
    """
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(_may_pass),
        wait=tenacity.wait_random_exponential(multiplier=0.1, max=3),
        stop=tenacity.stop_any(tenacity.stop_after_delay(seconds), _OwnFault()),
        before_sleep=lambda state: _say(state, what),
    )
    try:
        return retrying(lambda: plainly(do))
    except tenacity.RetryError as error:
        cause = error.last_attempt.exception()
        if _may_be_its_own(cause) or isinstance(unwrapped(cause), _REFUSED):
            raise CantBeSent(f"{what} can't be sent: {said(cause)}") from cause
        raise Unpublished(f"{what} could not be sent for {seconds:g} s ({type(cause).__name__})") from cause
    except SoftTimeLimitExceeded as error:
        raise Unpublished(f"{what} could not be sent before the soft time limit") from error


def plainly(do: Callable[[], T]) -> T:
    """What `do` returns; a hopeless answer of a Redis result backend is a TypeError."""
    try:
        return do()
    except ResponseError as error:
        if not str(error).startswith(_WRONG_TYPE):
            raise
        raise TypeError(f"a key of the result backend holds something else: {error}") from error


class _OwnFault(tenacity.stop.stop_base):
    """Stops the tries where only the step itself can be at fault: the broker answers, and still they fail alike."""

    def __init__(self) -> None:
        self.alike = 0

    def __call__(self, state: tenacity.RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome is not None else None
        self.alike = self.alike + 1 if _may_be_its_own(error) else 0
        if self.alike < GIVEN_UP_AFTER:
            return False
        self.alike = 0  # where it does not answer, it is looked at again after as many tries
        return broker_answers()


def _may_be_its_own(error: BaseException | None) -> bool:
    """kombu wraps what its transport takes for a broken connection: a KeyError, for one, on a Redis-protocol broker."""
    wrapped = unwrapped(error)
    unroutable = isinstance(wrapped, ChannelError) and wrapped.reply_code == NO_ROUTE
    return unroutable or isinstance(wrapped, GIVEN_UP) or (wrapped is not error and isinstance(wrapped, HOPELESS))


def unwrapped(error: BaseException | None) -> BaseException | None:
    """What kombu has wrapped, for it takes it for a broken connection; else the error itself."""
    return error.__cause__ if isinstance(error, OperationalError) and error.__cause__ is not None else error


def said(error: BaseException | None) -> str:
    """What an error says of itself; its type where it says nothing."""
    return f"{type(error).__name__}: {error}" if f"{error}" else type(error).__name__


def broker_answers() -> bool:
    """Does the broker take a connection of its own now?"""
    try:
        with current_app.connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, timeout=5, reraise_as_library_errors=False)
            return bool(connection.connected)
    except Exception:
        return False


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, (*HOPELESS, SoftTimeLimitExceeded))


def _say(state: tenacity.RetryCallState, what: str) -> None:
    if state.attempt_number == 1 and state.outcome is not None:
        # The type alone: a broker's error may quote the message.
        log.warning("%s can't be sent now, holding it: %s", what, type(state.outcome.exception()).__name__)
