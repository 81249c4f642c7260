"""The vocabulary of the laws: times, messages, and what is committed.

Times are seconds on a clock that only moves when it is told to; all are multiples of a UNIT, but for thresholds, so
that the seconds a test takes never decide.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from harness.core.alike import conflict_id
from harness.core.message import digest
from harness.process import Limits

UNIT = 1000.0
LIMITS = Limits(
    fence_wait=0.03,
    outage_hold=10.0,
    max_deliveries=3,
    recount_lease=UNIT,
    busy_delay=UNIT,
    too_old=80.5 * UNIT,
)
FENCE_TTL = 90.5 * UNIT
LETTER_TTL = 50.5 * UNIT
TRIES, WAIT = 3, 2 * UNIT
NOT_READY_WAIT, NOT_READY_DEADLINE = UNIT, 3.5 * UNIT
LATER = 3 * UNIT
LEASE, LONGEST_LEASE = UNIT, 4 * UNIT
#: Seconds that are no unit but not yet over either: an unknown task's wait, a row that the broker refused.
SOON = 30.0

#: How a handler, or the parent's verdict, ends a try → the reason of the letter that it leads to at last.
EXHAUSTED = {
    "transient": "exhausted",
    "retry_later": "exhausted",
    "crashed": "crashed",
    "timed_out": "timed_out",
    "unknown_task": "unknown_task",
}
HOPELESS = {
    "permanent": "permanent",
    "invalid": "invalid_payload",
    "undecodable": "undecodable",
    "expired": "expired",
    "revoked": "revoked",
    "too_old": "too_old",
}


class Key(NamedTuple):
    job_id: str
    consumer: str

    def filed(self, content: int) -> Key:
        """Under which another content of this id is kept."""
        return Key(conflict_id(self.job_id, digest_of(content)), self.consumer)


def digest_of(content: int) -> bytes:
    """What the product says of a message with this content."""
    return digest([], {"n": content})


class Sent(NamedTuple):
    """One message with the broker, or in a worker's hand. `task` is its name, `consumer` what its marks claim."""

    job_id: str
    task: str
    consumer: str
    generation: int | None = None
    dispatches: int = 0
    redelivered: bool = False
    eta: float | None = None
    expires: float | None = None
    sent_at: float = 0.0
    goes_on: bool = False
    content: int = 0

    @property
    def key(self) -> Key:
        return Key(self.job_id, self.consumer)

    @property
    def suspicious(self) -> bool:
        return self.redelivered or self.dispatches > 1

    def adopted(self, generation: int = 0) -> Sent:
        mine = generation if self.generation is None else self.generation
        return self._replace(generation=mine, redelivered=False, dispatches=1)

    def plain(self, consumer: str) -> Sent:
        return self._replace(generation=None, dispatches=0, consumer=consumer)


@dataclass
class Fence:
    state: str
    at: float
    content: int | None


@dataclass
class Row:
    available: float
    created: float
    content: int
    generation: int = 0
    attempts: int = 0
    deliveries: int = 0
    dispatches: int = 0
    failures: int = 0
    letter: int | None = None
    leased: float | None = None
    unready: float | None = None  # when it said first that it is not ready


@dataclass
class Letter:
    key: Key
    content: int
    reason: str
    attempts: int
    deliveries: int
    failures: int
    status: str = "pending_review"
    replays: int = 0
    resolved: float | None = None
    lineage: list[str] = field(default_factory=list)
    audit: list[str] = field(default_factory=list)
    gone: bool = False

    @property
    def is_open(self) -> bool:
        return self.resolved is None and not self.gone


@dataclass
class World:
    """What is committed."""

    now: float = 0.0
    fences: dict[Key, Fence] = field(default_factory=dict)
    rows: dict[Key, Row] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)
    effects: Counter[tuple[str, int]] = field(default_factory=Counter)
    #: Generations that are still to be learnt from the database are negative.
    drawn: int = 0

    def fresh(self) -> int:
        self.drawn += 1
        return -self.drawn

    def copy(self) -> World:
        return World(
            self.now,
            {key: replace(fence) for key, fence in self.fences.items()},
            {key: replace(row) for key, row in self.rows.items()},
            [replace(x, lineage=[*x.lineage], audit=[*x.audit]) for x in self.letters],
            self.effects.copy(),
            self.drawn,
        )

    def open_letter(self, key: Key) -> int | None:
        return next((n for n, letter in enumerate(self.letters) if letter.is_open and letter.key == key), None)
