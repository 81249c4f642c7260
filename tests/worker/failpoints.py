"""Points at which a test kills the worker it runs: product functions wrapped in the worker's own process.

FAILPOINTS names a folder. A file `<point>` in it, with `<child | worker> <job id>` as its text, arms that point for one
job; whoever comes there takes the file away, so that it fires once, and dies by SIGKILL: that process alone, or the
whole worker (parent, children, relay).
"""

import os
import signal
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ.get("FAILPOINTS", ""))


def hit(point: str, job_id: str) -> None:
    """Die here, if this point is armed for this job."""
    armed, fired = FOLDER / point, FOLDER / f"{point}.fired"
    try:
        who, wanted = armed.read_text().split()
        if wanted != job_id:
            return
        os.link(armed, fired)  # refuses when it exists: only one process fires
        armed.unlink()
    except (FileNotFoundError, FileExistsError, ValueError):
        return
    if who == "worker":
        os.killpg(os.getpgrp(), signal.SIGKILL)
    else:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def wrap(owner: Any, name: str, job_of: Callable[..., str], before: str = "", after: str = "") -> None:
    """Put the points around `owner.name`; `job_of` finds the job id in its arguments."""
    function = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before:
            hit(before, job_of(*args))
        result = function(*args, **kwargs)
        if after:
            hit(after, job_of(*args))
        return result

    setattr(owner, name, wrapped)


def install() -> None:
    """Wrap what the points stand around; called before the pool forks."""
    from harness.worker import after, chords
    from harness.worker.publisher import Publisher
    from harness.worker.request import JobRequest

    # By name: the package has functions that are called as their modules.
    deliver, verdict, work = (import_module(f"harness.process.{name}") for name in ("deliver", "verdict", "work"))

    def of_copy(first: Any, second: Any, copy: Any, *_: Any) -> str:
        return str(copy.key.job_id)

    wrap(work, "_take", lambda _session, _store, copy, _limits: copy.key.job_id, "before_fence", "after_fence")
    wrap(work, "_call", lambda _session, _connection, _handler, job: job.id, after="after_handler")
    wrap(work, "_once", of_copy, after="after_commit")
    wrap(deliver, "count", of_copy, "before_count", "after_count")
    wrap(verdict, "_record", of_copy, after="verdict_before_commit")
    wrap(deliver, "verdict", of_copy, "before_verdict", "verdict_after_commit")
    wrap(JobRequest, "acknowledge", lambda request: request.id, "before_ack", "after_ack")
    for module in (after, chords):
        # The last word says whose it is: the job, or for a chord's body its group.
        wrap(module, "hold", lambda _do, _seconds, what: what.split()[-1], "before_send", "after_send")
    wrap(after.After, "_store", lambda one, *_: one.request.id, "before_store", "after_store")
    wrap(Publisher, "_send", lambda _publisher, row: row.job_id, "relay_leased", "relay_published")
