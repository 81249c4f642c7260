"""Every error of the harness, in one tree.

    HarnessError
     ├ JobError              what a handler raises to say how its job goes on
     │  ├ Permanent          dead now, no further try
     │  ├ RetryLater         try again after this delay; spends a try
     │  ├ NotReady           wait without spending a try, up to the policy's deadline
     │  └ OutcomeUnknown     the call may have taken effect: a person decides
     ├ InvalidPayload        the arguments do not fit the handler's signature
     ├ UsageError            a fault in the program; a retry cannot help
     │  ├ SignatureError     the handler's signature cannot be used
     │  ├ ConflictingJob     a job is enqueued under an id that is known with other arguments
     │  ├ TransactionRefused the handler tried to end the harness's transaction
     │  └ NotInAJob          something that only works inside a job was used outside
     ├ ConfigError           a setting or a policy is wrong
     │  └ TablesUnusable     the harness's tables are not where the caller's session looks, or not for its role
     └ Unrecorded            the outcome could not be committed; the message must not be acknowledged

All of them survive pickling, for they may travel from a pool child to its parent.
"""

import math
from datetime import timedelta
from typing import Any, NoReturn


class DualWrite(UserWarning):
    """A handler has sent a job past its transaction: it is sent also where the transaction is rolled back."""


class HarnessError(Exception):
    """The root of the tree."""


class JobError(HarnessError):
    """What a handler raises to say how its job goes on."""


class Permanent(JobError):
    """The job can never succeed: it is dead-lettered now, with no further try."""


class RetryLater(JobError):
    """The job is to be tried again after `delay`, whatever the policy's own wait; it spends a try.

    `delay` is in seconds, or a timedelta. A negative one counts as 0; one that is not a finite number raises
    `UsageError`.
    """

    def __init__(self, delay: float | timedelta, message: str = "") -> None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
            raise UsageError(
                f"RetryLater got the delay {delay!r}. It must be a finite number of seconds or a timedelta, "
                "for the job waits exactly that long. Pass such a value, or raise another exception to wait "
                "as the policy says."
            )
        self.delay = max(0.0, float(seconds))
        self.message = message
        super().__init__(message or f"retry in {self.delay:g} s")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.delay, self.message)


class NotReady(JobError):
    """Something the job needs is not there yet: it waits up to the policy's deadline and spends no try."""


class OutcomeUnknown(JobError):
    """Whether the call to the other side took effect can't be told: dead-lettered now (`outcome_unknown`).

    For jobs with external effects, where a request was sent and no answer came. The job is not tried again before a
    person has looked and replays it.
    """


class InvalidPayload(HarnessError):
    """The arguments do not fit the handler's signature: poison, dead-lettered with no try at all.

    `errors` has one entry for each wrong argument: `argument`, `type` and `message`. Only the harness raises
    it; it cannot be subclassed, and one that a handler raises counts as any other error of the handler.
    """

    def __init__(self, message: str, errors: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.errors: list[dict[str, Any]] = list(errors or ())

    def __init_subclass__(cls, **kwargs: Any) -> NoReturn:
        raise TypeError(
            "InvalidPayload cannot be subclassed: it means that the harness refused a message. "
            "To end a job from its handler, raise Permanent or a subclass of it."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.errors)


class UsageError(HarnessError):
    """A fault in the program that uses the harness. A job that raises it is dead at once."""


class SignatureError(UsageError):
    """A handler's signature cannot be used. The message names the parameter and what to do."""


class ConflictingJob(UsageError):
    """A job was to be enqueued under an id that is known with other arguments. Nothing of it was written."""


class TransactionRefused(UsageError):
    """A handler tried to commit, roll back or close the session; the transaction is the harness's."""


class NotInAJob(UsageError):
    """Something that only works inside a job was used outside of one."""


class ConfigError(HarnessError):
    """A setting or a policy is wrong. Raised when it is made, not when a job first needs it."""


class TablesUnusable(ConfigError):
    """The tables are not in the database of the caller's session, too old, or its role has no right to them."""


class Unrecorded(HarnessError):
    """The outcome of a delivery could not be committed. Its message must not be acknowledged."""
