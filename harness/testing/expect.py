"""Assertions about jobs; one that fails says what was there instead."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from harness.core.reason import Reason
from harness.store.inbox import InboxRow
from harness.store.letter import Letter
from harness.testing.rows import JobRows
from harness.testing.sent import Sent

#: An exception's very type, or a part of `type: message`.
Error = type[BaseException] | str


class Expect(ABC):
    """What can be said of jobs. `job` is a job or the name of its task; without one, any job will do."""

    @property
    @abstractmethod
    def sent(self) -> Sequence[Sent]:
        """All that was sent."""

    @abstractmethod
    def rows(self) -> Sequence[JobRows]:
        """What the tables know."""

    def assert_enqueued(
        self,
        job: Any = None,
        /,
        *,
        args: Sequence[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
        job_id: str | None = None,
        queue: str | None = None,
        times: int | None = None,
    ) -> Sent:
        """It was sent: by `delay`, `apply_async`, or as a row in the inbox. Returns the last one that fits.

        `kwargs` may be a part of them. Without `times` once is enough.
        """
        __tracebackhide__ = True
        fitting = [
            one
            for one in self.sent
            if _named(job, one.task)
            and (args is None or tuple(args) == one.args)
            and (kwargs is None or one.kwargs.items() >= kwargs.items())
            and job_id in (None, one.job_id)
            and queue in (None, one.queue)
        ]
        if (len(fitting) != times) if times is not None else not fitting:
            said = _with(args=args, kwargs=kwargs, job_id=job_id, queue=queue)
            wanted = "was not sent" if times is None else f"was sent {_often(len(fitting))}, not {_often(times)}"
            raise AssertionError(f"{_name(job)}{said} {wanted}. {_listed('Sent was', self.sent)}")
        return fitting[-1] if fitting else _NOTHING

    def assert_not_enqueued(self, job: Any = None, /) -> None:
        """Nothing was sent, or nothing of this job."""
        __tracebackhide__ = True
        fitting = [one for one in self.sent if _named(job, one.task)]
        if fitting:
            raise AssertionError(f"{_name(job)} was sent. {_listed('Sent was', fitting)}")

    def assert_deferred(
        self,
        job: Any = None,
        /,
        *,
        job_id: str | None = None,
        delay: float | tuple[float, float] | None = None,
        attempts: int | None = None,
        error: Error | None = None,
    ) -> InboxRow:
        """It waits in the inbox for another try or for its time. Returns its row.

        `delay` is what it waits from now, in seconds (to a hundredth), or the shortest and the longest; `attempts` the
        tries that are spent; `error` what failed last.
        """
        __tracebackhide__ = True
        low, high = (delay, delay) if not isinstance(delay, tuple) else delay
        for found in self._of(job, job_id):
            if (
                found.row is not None
                and found.deferred
                and (low is None or high is None or low - 0.01 <= found.due_in <= high + 0.01)
                and attempts in (None, found.attempts)
                and _is_error(found, error)
            ):
                return found.row
        raise AssertionError(
            f"{_name(job)}{_with(job_id=job_id, delay=delay, attempts=attempts, error=error)} is not deferred. "
            + _listed("There is", self.rows())
        )

    def assert_dead(
        self,
        job: Any = None,
        /,
        *,
        job_id: str | None = None,
        reason: Reason | str | None = None,
        attempts: int | None = None,
        error: Error | None = None,
    ) -> Letter:
        """It is a dead letter that is still open. Returns the letter."""
        __tracebackhide__ = True
        for found in self._of(job, job_id):
            letter = found.letter
            if (
                letter is not None
                and letter.resolved_at is None
                and found.row is None
                and reason in (None, letter.reason)
                and attempts in (None, letter.attempts)
                and _is_error(found, error)
            ):
                return letter
        said = _with(job_id=job_id, reason=reason, attempts=attempts, error=error)
        raise AssertionError(f"{_name(job)}{said} is no dead letter. {_listed('There is', self.rows())}")

    def assert_done(self, job: Any = None, /, *, job_id: str | None = None) -> None:
        """It has had its effect, and nothing waits for it."""
        __tracebackhide__ = True
        if not any(found.state == "done" and found.row is None for found in self._of(job, job_id)):
            raise AssertionError(f"{_name(job)}{_with(job_id=job_id)} is not done. {_listed('There is', self.rows())}")

    def _of(self, job: Any, job_id: str | None) -> list[JobRows]:
        return [found for found in self.rows() if job_id in (None, found.job_id) and _consumer_is(job, found.consumer)]


def _consumer_is(job: Any, consumer: str) -> bool:
    if job is None:
        return True
    spec = getattr(job, "spec", None)
    return bool(consumer == spec.consumer if spec is not None else consumer.partition("/")[2] == job)


def _named(job: Any, task: str) -> bool:
    return job is None or task == getattr(job, "name", job)


def _name(job: Any) -> str:
    return "any job" if job is None else str(getattr(job, "name", job))


def _with(**wanted: Any) -> str:
    """The conditions that were set, in words."""
    shown = ((name, value) for name, value in wanted.items() if value is not None)
    said = [f"{name}={getattr(value, '__name__', None) or repr(value)}" for name, value in shown]
    return f" with {', '.join(said)}" if said else ""


def _often(times: int) -> str:
    return "once" if times == 1 else f"{times} times"


def _is_error(found: JobRows, error: Error | None) -> bool:
    if error is None:
        return True
    if isinstance(error, str):
        return error in found.error
    module = "" if error.__module__ == "builtins" else f"{error.__module__}."
    return found.error.partition(": ")[0] == f"{module}{error.__qualname__}"


def _listed(what: str, found: Sequence[object]) -> str:
    return f"{what}:" + "".join(f"\n  {one}" for one in found) if found else f"{what} nothing."


_NOTHING: Any = None
