"""What a project hangs onto its worker, and what goes wrong there: hooks, signals, result backend, Sentry.

A job's id says what fails for it: `on_success-…` makes the hook `on_success` raise, and so on.
"""

import fcntl
import json
import os
from typing import Any

import sentry_sdk
from celery import Celery, signals
from celery.backends.base import Backend
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport
from sqlalchemy.orm import Session

from harness import Harness, Job, JobTask, Permanent

HOOKS = ("before_start", "on_success", "on_failure", "on_retry", "after_return")
SIGNALS = ("task_received", "task_prerun", "task_postrun", "task_success", "task_failure", "task_retry")
BACKEND = ("mark_as_started", "mark_as_done", "mark_as_failure", "mark_as_retry", "store_result")


def fail_for(name: str, *values: Any) -> None:
    """Raise if one of the values is the id of a job that wants it."""
    for value in values:
        if isinstance(value, str) and value.startswith(f"{name}-"):
            raise RuntimeError(f"{name} fails")


class Failing(Backend):  # type: ignore[misc]
    """A result backend that fails where the job's id says."""

    def store_result(self, task_id: str, result: Any, state: str, *args: Any, **kwargs: Any) -> Any:
        fail_for("store_result", task_id)
        return result

    def _get_task_meta_for(self, task_id: str) -> dict[str, Any]:
        return {"status": "PENDING", "result": None}


def _failing_mark(name: str) -> Any:
    def mark(self: Any, task_id: str, *args: Any, **kwargs: Any) -> Any:
        fail_for(name, task_id)
        return getattr(Backend, name)(self, task_id, *args, **kwargs)

    return mark


for _name in BACKEND[:-1]:
    setattr(Failing, _name, _failing_mark(_name))


class ToFile(Transport):
    """Writes each event as a line, whole, from any process."""

    def capture_envelope(self, envelope: Envelope) -> None:
        event = envelope.get_event()
        if event is not None:
            with open(os.environ["SENTRY_FILE"], "a") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(json.dumps(event, default=repr) + "\n")


def install(app: Celery, harness: Harness) -> None:
    """Hang everything onto the app; Sentry if SENTRY_FILE or SENTRY_DSN is set."""
    if "SENTRY_FILE" in os.environ:
        sentry_sdk.init("http://key@127.0.0.1:9/1", transport=ToFile, debug=False)
    elif "SENTRY_DSN" in os.environ:
        sentry_sdk.init(os.environ["SENTRY_DSN"])
    for name in SIGNALS:
        getattr(signals, name).connect(_receiver(name), weak=False)
    for name in HOOKS:
        setattr(JobTask, name, _hook(name))

    @harness.job(name="returns")
    def returns(session: Session, job: Job, secret: str) -> str:
        return secret

    @harness.job(name="leaks", throws=(KeyError,))
    def leaks(session: Session, job: Job, secret: str, kind: str = "error") -> None:
        if kind == "permanent":
            raise Permanent(f"no account {secret}")
        raise ValueError(f"cannot pay {secret}\nin {secret}")


def _receiver(name: str) -> Any:
    def receive(sender: Any = None, task_id: Any = None, request: Any = None, **_: Any) -> None:
        fail_for(name, task_id, getattr(request, "id", None), getattr(getattr(sender, "request", None), "id", None))

    return receive


def _hook(name: str) -> Any:
    def hook(self: Any, *args: Any, **kwargs: Any) -> None:
        fail_for(name, *args)

    return hook
