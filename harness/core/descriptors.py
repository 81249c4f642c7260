"""Connections that a process has only because it was forked from another one, which opened them."""

import contextlib
import os
import socket
import stat
import sys
from collections.abc import Iterable

#: Where a process reads what it has open.
_OPEN = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"


def let_go(descriptors: Iterable[int]) -> None:
    """Have these lead nowhere. They stay taken: whoever still holds one closes it later, and must not close another."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    try:
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                os.dup2(nowhere, descriptor, inheritable=False)
    finally:
        os.close(nowhere)


def connections() -> dict[int, tuple[int, int]]:
    """The connections that this process has to others: by descriptor, what is the same in each process that has it.

    TCP and named Unix streams; no pipes, nothing that only listens. Empty where the system does not tell. Not to be
    called while another thread opens sockets.
    """
    found: dict[int, tuple[int, int]] = {}
    # With a default time-out, Python would change the mode of each socket it looks at, for all who have it.
    default = socket.getdefaulttimeout()
    socket.setdefaulttimeout(None)
    try:
        for name in os.listdir(_OPEN):
            with contextlib.suppress(OSError):
                state = os.fstat(int(name))
                if stat.S_ISSOCK(state.st_mode) and _is_connection(int(name)):
                    found[int(name)] = (state.st_dev, state.st_ino)
    except OSError:
        pass
    finally:
        socket.setdefaulttimeout(default)
    return found


def _is_connection(descriptor: int) -> bool:
    known = socket.socket(fileno=descriptor)
    try:
        return known.type == socket.SOCK_STREAM and bool(known.getpeername())
    finally:
        known.detach()
