"""A process that is forked late, when its worker is connected, is to have what the first ones had.

With the worker's connection to the broker in its hand, too, the broker would not see that the worker is dead for as
long as that process, or one that a handler has started in it, lives; and what the worker had is nobody's till then.
"""

import ctypes
import os
import signal
import sys
import threading

from harness.core.descriptors import connections, let_go

PR_SET_PDEATHSIG = 1


class _Worker:
    """The worker that this process is, or was forked from.

    `had`: what it had open before it forked anything. `by_main`: its main thread has forked this process.
    """

    pid: int | None = None
    had: frozenset[tuple[int, int]] = frozenset()
    by_main = True


def begin() -> None:
    """In the worker, before it forks for the first time and before it consumes."""
    _Worker.pid = os.getpid()
    _Worker.had = frozenset(connections().values())


def end() -> None:
    """In the worker, when it has ended: its process may go on, and is free to fork what it wants."""
    _Worker.pid = None


def _before() -> None:
    _Worker.by_main = threading.current_thread() is threading.main_thread()


def _in_child() -> None:
    if _Worker.pid is not None and _Worker.pid == os.getppid():
        let_go(descriptor for descriptor, what in connections().items() if what not in _Worker.had)


def end_with_worker(number: signal.Signals = signal.SIGTERM) -> None:
    """In a child of the worker: have the system send it `number` when the worker is dead, and end if it is already.

    Does nothing in the worker itself, for which Celery's pool `solo` calls it, too. Only the second part where the
    system is not Linux, or another thread than the main one has forked the process: to the system that is the parent.
    """
    if _Worker.pid in (None, os.getpid()):
        return
    if sys.platform == "linux" and _Worker.by_main:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != _Worker.pid:
        os._exit(0)


os.register_at_fork(before=_before, after_in_child=_in_child)
