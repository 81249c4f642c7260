"""The claim of a job with external effects: its number, the time that it has, and a process that ends with it."""

import secrets
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from harness.core.policy import LONGEST_DELAY
from harness.process.spec import External

#: Numbers from here on are claims; the sequence of the other generations does not get there, and no other claim draws
#: the same. 18 digits: what the mark of a generation may have.
_FIRST = 10**17


@dataclass(frozen=True, slots=True)
class Claim:
    """`number` is the generation of the inbox row meanwhile; `limit` the hard time limit in seconds.

    `sent`: the worker's parent has made it, and can tell by it whether its dead child had called the handler.
    """

    number: int
    limit: float
    sent: bool = False

    @classmethod
    def new(cls, limit: float) -> "Claim":
        """A claim that nobody else has."""
        return cls(_FIRST + secrets.randbelow(9 * _FIRST), min(limit, LONGEST_DELAY))

    @classmethod
    def of(cls, said: str | None, external: External) -> "Claim":
        """The claim that the parent says, else a new one with the job's own limit."""
        if said is None:
            return cls.new(external.limit)
        number, _, limit = said.partition(" ")
        return cls(int(number), float(limit), sent=True)

    def __str__(self) -> str:
        """As the parent says it."""
        return f"{self.number} {self.limit:g}"


def number_of(said: str) -> int:
    """The number in what the parent says."""
    return int(said.partition(" ")[0])


@contextmanager
def ending_itself(seconds: float) -> Iterator[None]:
    """Have the kernel end this process after so many seconds, for its parent may be dead and can't.

    Nothing where the handler's project has a use for SIGALRM, which is one for each process.
    """
    usable = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
        and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    )
    if usable:
        signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        if usable:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
