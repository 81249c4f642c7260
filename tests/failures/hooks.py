"""A project whose every hook and signal handler raises."""

from typing import Any

from celery import Celery, Task, signals

SIGNALS = ("task_received", "task_prerun", "task_postrun", "task_success", "task_failure", "task_retry")
HOOKS = ("before_start", "on_success", "on_failure", "on_retry", "after_return")


def install(app: Celery) -> None:
    for name in SIGNALS:
        getattr(signals, name).connect(fail, weak=False)
    for name in HOOKS:
        setattr(Task, name, fail)


def fail(*_: Any, **__: Any) -> None:
    raise RuntimeError("a hook of the project fails")
