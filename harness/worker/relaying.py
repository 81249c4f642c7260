"""The relay as a process: alone (`celery -A app harness relay`) or as a child of a worker."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from harness.core.failure import Kind
from harness.core.reason import Reason
from harness.relay import Relay
from harness.relay.wake import WakeUp
from harness.store.dispatch import Caps
from harness.store.inbox import InboxRow
from harness.store.outside import is_outside
from harness.worker.forked import end_with_worker
from harness.worker.publisher import Publisher
from harness.worker.transport import is_redis

if TYPE_CHECKING:
    from harness.worker.harness import Harness

log = logging.getLogger("harness")


def relay_of(harness: "Harness") -> Relay:
    """The relay of the harness's own service."""
    settings = harness.settings
    return Relay(
        harness.database,
        harness.store,
        settings.service,
        Publisher(harness.app),
        harness.events,
        batch=settings.relay_batch,
        lease=settings.lease,
        longest_lease=settings.lease_longest,
        poll=settings.relay_poll,
        # kombu's Redis transport serves priority 0 first, RabbitMQ the highest.
        highest_first=not is_redis(harness.app.conf),
        caps=cache(lambda: caps_of(harness)),
        outside=lambda row: is_outside(row) or _is_plain(harness, row),
        wake=WakeUp(harness.database, settings.schema_name, settings.service) if settings.notify else None,
    )


def _is_plain(harness: "Harness", row: InboxRow) -> bool:
    """Has a worker that did not know the task put it in, which is known by now, and is no job?

    Not to be told from the code alone: in a roll-out this relay may be of the release before the task became a job, and
    the row that of a job which has been tried.
    """
    task = harness.app.tasks.get(row.task)
    if task is None or getattr(task, "is_job", False) or row.consumer != f"{row.service}/{row.task}":
        return False
    if row.failures:
        return all(failure.get("kind") == Kind.unknown_task for failure in row.failures)
    if row.letter_id is None:
        return False
    with harness.database.begin() as session:
        letter = harness.store.letters.get(session, row.service, row.letter_id)
    return letter is not None and letter.reason == Reason.unknown_task


def caps_of(harness: "Harness") -> Caps:
    """The most rows that may be in flight: of the jobs that say so, and of all others."""
    jobs = harness.jobs().values()
    return Caps(
        {job.consumer: job.max_in_flight for job in jobs if job.max_in_flight is not None},
        harness.settings.max_in_flight,
    )


def run(harness: "Harness") -> None:
    """Relay in the foreground until SIGTERM or SIGINT."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    relay_of(harness).run(stop)


def start_child(harness: "Harness", main: Callable[["Harness"], None] = run, name: str = "relay") -> int:
    """Fork a relay, or `main`, that ends with this process; returns its pid. The caller has no threads yet."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _as_child()
        main(harness)
        code = 0
    except BaseException:
        log.exception("%s: ended by an error; the worker starts another one", name)
    finally:
        sys.stderr.flush()
        os._exit(code)


def _as_child() -> None:
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    # Ctrl-C on a terminal reaches the whole group: the worker says when its relay ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_worker()


def alive(pid: int) -> bool:
    """Is the child running? Reaps it when it is not."""
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


def end(pid: int) -> Any:
    """End the child and wait for it."""
    if alive(pid):
        os.kill(pid, signal.SIGTERM)
        deadline = threading.Event()
        for _ in range(100):
            if not alive(pid):
                return
            deadline.wait(0.05)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
