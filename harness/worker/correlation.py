"""The correlation id: what a job sends on, directly or through a canvas, carries its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from celery import current_task, signals

from harness.worker.wire import CORRELATION

#: That of the job whose handler is at work, None outside of one.
CURRENT: ContextVar[str | None] = ContextVar("harness_correlation", default=None)
#: That of the job behind whose commit something is sent.
_BEHIND: ContextVar[str | None] = ContextVar("harness_correlation_behind", default=None)


@contextmanager
def passing_on(correlation_id: str | None) -> Iterator[None]:
    """Let everything that is published in this block carry `correlation_id`."""
    token = _BEHIND.set(correlation_id)
    try:
        yield
    finally:
        _BEHIND.reset(token)


@signals.before_task_publish.connect  # type: ignore[untyped-decorator]
def _pass_on(headers: Any = None, **_: Any) -> None:
    """Also from a plain task between two jobs, which has got it in its own message."""
    if not isinstance(headers, dict) or CORRELATION in headers:
        return
    found = CURRENT.get() or _BEHIND.get() or _of_plain_task()
    if found is not None:
        headers[CORRELATION] = found


def _of_plain_task() -> str | None:
    request = current_task.request if current_task else None
    headers = getattr(request, "headers", None)
    found = headers.get(CORRELATION) if isinstance(headers, dict) else None
    return found if isinstance(found, str) else None
