"""Way 9: the worker is stopped, in every manner, or renews its processes."""

import os
import signal

from tests.failures.case import Case, Send
from tests.failures.place import Place

_SLOW = [Send("credit", {"pause": 2.5}), Send("credit", {"pause": 0.2}, 3)]


def stop_by(*signals: signal.Signals, pause: float = 0.4):
    """Send `signals` to the worker in the middle of the work, then SIGKILL to what is left, and start it again."""

    def stop(place: Place) -> None:
        place.at_work()
        worker = place.worker
        assert worker is not None
        assert worker.process is not None
        for number in signals:
            if worker.alive:
                os.kill(worker.process.pid, number)
            place.wait(pause)
        for _ in range(80):
            if not worker.alive:
                break
            place.wait(0.1)
        worker.kill()
        worker.start()

    return stop


def kill_after_term(place: Place) -> None:
    place.at_work()
    worker = place.worker
    assert worker is not None
    assert worker.process is not None
    os.kill(worker.process.pid, signal.SIGTERM)
    place.wait(0.8)
    worker.kill()
    worker.start()


def restart_pool(place: Place) -> None:
    place.at_work()
    place.sender.control.pool_restart(reload=False, reply=True, timeout=10)


def grow_and_shrink(place: Place) -> None:
    place.at_work()
    place.sender.control.pool_grow(2, reply=True, timeout=5)
    place.sender.control.pool_shrink(2, reply=True, timeout=5)


CASES = [
    Case("warm shutdown", 9, "SIGTERM in the middle of the work", _SLOW, 4, wrong=stop_by(signal.SIGTERM)),
    Case("cold shutdown", 9, "SIGQUIT in the middle of the work", _SLOW, 4, wrong=stop_by(signal.SIGQUIT)),
    Case(
        "warm, then cold shutdown", 9, "SIGTERM, then SIGQUIT", _SLOW, 4, wrong=stop_by(signal.SIGTERM, signal.SIGQUIT)
    ),
    Case(
        "soft shutdown",
        9,
        "SIGQUIT with worker_soft_shutdown_timeout = 1 s",
        _SLOW,
        4,
        wrong=stop_by(signal.SIGQUIT),
        settings={"worker_soft_shutdown_timeout": 1.0, "worker_enable_soft_shutdown_on_idle": True},
    ),
    Case("SIGTERM, then SIGKILL", 9, "what a container gets whose time is over", _SLOW, 4, wrong=kill_after_term),
    Case(
        "max_tasks_per_child",
        9,
        "a new process after each job",
        [Send("credit", {"pause": 0.1}, 8)],
        8,
        options=["--max-tasks-per-child=1"],
    ),
    Case(
        "max_memory_per_child",
        9,
        "a new process after each job, for each takes too much memory",
        [Send("grows", {"megabytes": 30}, 6)],
        6,
        options=["--max-memory-per-child=1000"],
    ),
    Case(
        "autoscale", 9, "processes come and go", [Send("credit", {"pause": 0.4}, 12)], 12, options=["--autoscale=4,1"]
    ),
    Case(
        "pool restarted",
        9,
        "control.pool_restart in the middle of the work",
        _SLOW,
        4,
        wrong=restart_pool,
        settings={"worker_pool_restarts": True},
    ),
    Case(
        "pool grown and shrunk",
        9,
        "pool_grow and pool_shrink in the middle of the work",
        _SLOW,
        4,
        wrong=grow_and_shrink,
    ),
]
