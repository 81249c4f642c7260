"""How a delivery ends: exactly one of these, each proof that its transaction has committed."""

from dataclasses import dataclass

from harness.core.failure import Failure
from harness.core.reason import Reason


@dataclass(frozen=True, slots=True)
class Completed:
    """The handler's work and the fence are committed, at the try `attempt`. `result` is what the handler returned."""

    result: object = None
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The job was done before; this copy changed nothing. `result` is the first run's, where stored."""

    result: object = None


@dataclass(frozen=True, slots=True)
class Stale:
    """The inbox or, where it is `dead`, a dead letter owns the job by now; this copy is dropped.

    `conflict`: it is not the job's own, and the letter of its content is there already.
    """

    dead: bool = False
    conflict: bool = False


@dataclass(frozen=True, slots=True)
class Deferred:
    """The job waits in the inbox: `attempt` is the try that failed, `delay` in seconds is what it waits."""

    attempt: int
    delay: float
    failure: Failure
    spends_try: bool


@dataclass(frozen=True, slots=True)
class Dead:
    """The job is a dead letter, `letter_id`, after `attempts` tries.

    `job_id`: the letter's, where that is not the delivery's own (a conflict).
    """

    reason: Reason
    attempts: int
    failure: Failure
    letter_id: int
    job_id: str | None = None


Outcome = Completed | Duplicate | Stale | Deferred | Dead
"""How a delivery ends."""
