"""A job that is sent from inside of a handler, past its transaction: the project is told, once."""

import sys
import warnings
from typing import Any

from harness.core.errors import DualWrite
from harness.worker.correlation import CURRENT

#: Tasks of which a dual write has been told.
_warned: set[str] = set()


def warn(task: Any) -> None:
    """Once per task and process: the handler's transaction may still be rolled back, or may commit unsent."""
    if CURRENT.get() is None or task.name in _warned or task.app.conf.task_always_eager:
        return
    _warned.add(task.name)
    warnings.warn(
        f"{task.name} is sent from inside of a handler, past its transaction: it is sent also where the handler is "
        "rolled back, and again by each of its tries. harness.enqueue(session, job, …) sends it with the commit "
        "and only then; docs/howto/enqueue.md.",
        DualWrite,
        stacklevel=_outside_celery(),
    )


def _outside_celery() -> int:
    """The `stacklevel` of the user's own line, for a warning that the caller of this function gives."""
    frame, level = sys._getframe(2), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("harness.", "celery.")):
        frame, level = frame.f_back, level + 1
    return level
