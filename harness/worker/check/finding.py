"""What a check is, and what it finds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.worker.check.facts import Facts


class Verdict(StrEnum):
    """How bad it is. `broken`: a promise does not hold. `unknown`: it could not be looked at."""

    broken = "broken"
    warning = "warning"
    unknown = "unknown"
    corrected = "corrected"
    accepted = "accepted"
    ok = "ok"


class Start(StrEnum):
    """What a worker does with it at its start."""

    refuses = "refuses"
    says = "says"
    corrects = "corrects"
    no = "–"


@dataclass(frozen=True, slots=True)
class Note:
    """Nothing is wrong; this is worth to be known all the same."""

    text: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """It could not be read; `text` says why, and what is assumed."""

    text: str


#: What a check yields: what is wrong, in words with the figures. Nothing at all: all is well.
Found = str | Note | Unknown
Function = Callable[["Facts"], Iterator[Found]]


@dataclass(frozen=True, slots=True)
class Check:
    """One question that has one verdict.

    `about`: the settings it looks at. `means`: what a fault does to the promises. `do`: what to do. `part`: which
    facts it needs: configuration, database, broker, redis, rabbitmq.
    """

    name: str
    verdict: Verdict
    start: Start
    about: str
    means: str
    do: str
    part: str
    function: Function
    mend: Callable[["Facts"], None] | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's: `what` is, what it `means`, what to `do`."""

    name: str
    verdict: Verdict
    what: str = ""
    means: str = ""
    do: str = ""
    about: str = field(default="", compare=False)
    #: The check itself has failed: nobody knows.
    crashed: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return " ".join(part for part in (f"{self.name}:", self.what, self.means, self.do) if part)


#: Every check by its name, in the order in which they are made.
CHECKS: dict[str, Check] = {}


def check(
    name: str,
    verdict: Verdict,
    start: Start,
    *,
    about: str,
    means: str,
    do: str,
    part: str = "configuration",
    mend: Callable[["Facts"], None] | None = None,
) -> Callable[[Function], Function]:
    """Register a function as the check `name`."""

    def register(function: Function) -> Function:
        assert name not in CHECKS, name
        CHECKS[name] = Check(name, verdict, start, about, means, do, part, function, mend)
        return function

    return register
