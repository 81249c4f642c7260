"""In the parent, where the worker is told to end: hear the processes first that have just been given a job.

Celery's pool forgets at that moment whatever no process has said to have accepted, for the broker delivers it again.
What still lies in the parent goes back unrun in this way, which is right. But a job that has been written to a process
is run to its end all the same, and nobody hears of it: its message comes again as a duplicate, and the process waits
for 30 s to be heard, so that the worker ends so much later.
"""

import select
import time
from typing import Any

#: Seconds: a process says that it has accepted a job as soon as it has read it.
MOST = 2.0


def let_accept(pool: Any, seconds: float = MOST) -> None:
    """Wait until what was written to the processes of a prefork pool is accepted; for other pools nothing."""
    inner: Any = getattr(pool, "_pool", None)
    hear, pipes = getattr(inner, "handle_result_event", None), getattr(inner, "_fileno_to_outq", None)
    if hear is None or pipes is None:
        return
    end = time.monotonic() + seconds
    while any(job._write_to is not None and not job._accepted for job in [*inner._cache.values()]):
        if time.monotonic() > end:
            return
        poll = select.poll()
        for pipe in pipes:
            poll.register(pipe, select.POLLIN)
        for pipe, _ in poll.poll(50):
            hear(pipe)
