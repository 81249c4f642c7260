"""A handler that a test runs finds `self.request` and `current_task` as in a worker."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery._state import _task_stack
from celery.app.task import Context

from harness.testing.sent import WORKER
from harness.worker.delivery import Delivery
from harness.worker.wire import Wire


@contextmanager
def as_in_a_worker(task: Any, wire: Wire, args: Any, kwargs: Any, delivery: Delivery) -> Iterator[None]:
    """Make it so, for one delivery of `task`."""
    request = dict(wire.message.headers)
    request |= {"hostname": WORKER, "is_eager": False, "called_directly": False}
    request["delivery_info"] = {"routing_key": wire.message.queue}
    token = Delivery._current.set(delivery)
    task.request_stack.push(Context(request, args=args, kwargs=kwargs))
    _task_stack.push(task)
    try:
        yield
    finally:
        _task_stack.pop()
        task.request_stack.pop()
        Delivery._current.reset(token)
