"""Receivers that die between store and acknowledgement: `python -m tests.receive.killed <times>`.

Each is a process of its own, forked from this one so that it need not import everything again; it dies by SIGKILL
as soon as it has stored a message that was new. Prints how many died.
"""

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial

from sqlalchemy.orm import Session

from harness import Incoming
from harness.worker import receiving
from harness.worker.chosen import chosen
from tests.receive.app import harness, order


class Dying(receiving.Receiver):
    """Takes one message at a time."""

    is_new = False

    def _settle(self) -> bool:
        for one in self.hand:
            one.message.ack = partial(self._die_or, one.message.ack)
        return super()._settle()

    def _die_or(self, acknowledge: Callable[[], None]) -> None:
        if self.is_new:
            os.kill(os.getpid(), signal.SIGKILL)
        acknowledge()


def child() -> None:
    harness.forked()
    receiver = Dying(harness, chosen(harness, ["orders"]))
    receiver.batch = 1

    def listen(event: object) -> None:
        receiver.is_new = type(event).__name__ == "MessageReceived"

    harness.events.subscribe(listen)
    stop = threading.Event()
    signal.alarm(60)
    receiver.run(stop)


def warm_up() -> None:
    """What would be imported and compiled by each child again."""
    chosen(harness, ["orders"])
    with harness.app.connection_for_read() as connection:
        connection.ensure_connection(max_retries=3)
    with Session(harness.database.engine) as session:
        harness.receive(session, order, Incoming(id="warm", arguments={"item": "tea"}))
        session.rollback()
    gc.freeze()


def main(times: int) -> None:
    warm_up()
    died = 0
    for _ in range(times):
        pid = os.fork()
        if not pid:
            child()
        _, status = os.waitpid(pid, 0)
        died += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    print(f"died={died}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
