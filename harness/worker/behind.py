"""The job that something comes after: its request, its result backend, and how a step is made from its signature."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from celery import states
from celery.app.task import get_actual_ignore_result
from celery.backends.base import DisabledBackend
from celery.canvas import maybe_signature

from harness.process.copy import Copy
from harness.worker.holding import HOPELESS, CantBeSent, hold
from harness.worker.naming import name
from harness.worker.sure import surely
from harness.worker.unsent import Unsent

if TYPE_CHECKING:
    from harness.worker.harness import Harness

log = logging.getLogger("harness")


class Behind:
    """One job whose outcome is committed. `task` is None where this worker does not know it."""

    def __init__(self, harness: "Harness", task: Any, copy: Copy, request: Any) -> None:
        self.harness, self.task, self.copy, self.request = harness, task, copy, request
        self.backend = task.backend if task is not None else harness.app.backend
        self.seconds = harness.settings.limits.outage_hold

    # -- steps -----------------------------------------------------------------------------------------------------

    def send(
        self,
        signature: Any,
        place: str,
        args: tuple[Any, ...],
        do: Callable[[Any], Any],
        again: bool = False,
        **options: Any,
    ) -> Exception | None:
        """Have `do` send the step `signature`, whose ids follow from the job's and from its place ("link 0").

        `args` and `options` are what `do` adds to it. `again`: by a duplicate, so that it may have a letter already:
        else a message with many such steps, whose process is killed over them, would never come to its end.

        What can't be sent has a letter when this returns, and the error is returned. Raises Unpublished.
        """
        unsent = Unsent(self.harness, self.copy, self.seconds, place)
        key, named = self.copy.key, signature

        def send() -> None:
            nonlocal named
            named = name(_sound(signature), key.consumer, key.job_id, *place_of(place))
            do(maybe_signature(named, app=self.harness.app))

        what = f"what comes after job {self.request.id}"
        try:
            if again and unsent.has_letter(name(_sound(signature), key.consumer, key.job_id, *place_of(place))):
                return self._given_up(CantBeSent(f"{place} of job {key.job_id} could not be sent before"))
            with surely(self.harness.app, self.seconds, what, unsent.of_publish) as sure:
                hold(send, self.seconds, what)
            return self._given_up(sure.given_up)
        except HOPELESS as error:
            made = named if isinstance(named, dict) else {}
            unsent.of_signature({**made, "options": {**(made.get("options") or {}), **options}}, args, error)
            return self._given_up(error)

    def _given_up(self, error: Exception | None) -> Exception | None:
        if error is not None:
            kind = type(error.__cause__ or error).__name__
            log.warning("what comes after job %s can't be sent, and has a letter: %s", self.request.id, kind)
        return error

    # -- the result ------------------------------------------------------------------------------------------------

    def is_stored(self) -> bool:
        """Does its result go to a result backend?"""
        return not isinstance(self.backend, DisabledBackend) and not self._ignored()

    def has_result(self) -> bool:
        """Is a success stored under its id?"""
        if isinstance(self.backend, DisabledBackend) or not self.backend.persistent:
            return False
        return bool(self.backend.get_state(self.request.id) == states.SUCCESS)

    def by_the_way(self, do: Callable[[], None], passes: tuple[type[Exception], ...] = ()) -> None:
        """A result backend that is away must not keep a message from its acknowledgement."""
        try:
            do()
        except passes:
            raise
        except Exception as error:
            kind = type(error).__name__
            log.warning("the end of job %s is not in the result backend: %s", self.request.id, kind)

    def _ignored(self) -> bool:
        if self.task is not None:
            return bool(get_actual_ignore_result(self.task, self.request))
        return bool(self.request.ignore_result)


def place_of(place: str) -> tuple[object, ...]:
    """What the ids of a step are made from."""
    kind, _, position = place.partition(" ")
    return (kind, position) if position else (kind,)


def _sound(signature: Any) -> Any:
    if not isinstance(signature, dict):
        raise TypeError(f"no signature: {type(signature).__name__}")
    return signature
