"""The vocabulary of the model: one job's committed rows, its messages, the copies in hand, and the promises.

Only committed data is in ``fence``, ``row`` and ``letter``. A transaction that is still open is a copy at
``WORKING`` or an entry of ``detached`` (its client is gone, the server has not noticed yet); it holds the
fence's lock and its writes appear only when it commits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

# A copy acts under a generation. Relay copies carry 0, 1, 2, …; a producer's copy has none.
BROKER = -1
FRESH_ID = -2  # only in a known-bad variant: a retry that was published as a new job

# Where a copy in hand stands.
COUNT, FENCE, WORKING, VERDICT, BUSY, SEND, REPLY, POPPED, LATE_EFFECT, LATE_FENCE = (
    "count", "fence", "working", "verdict", "busy", "send", "reply", "popped", "late effect", "late fence",
)  # fmt: skip

# The promises. A search that finds one broken prints the shortest way there.
ONE_EFFECT = "one effect: a job's effect is committed at most once"
AGREEMENT = "effect if and only if the fence is 'done'"
ONE_DECISION = "no open letter beside a 'done' fence at quiescence"
NO_LOSS = "no silent loss: at quiescence the job is done or has a letter"
ACK_ON_PROOF = "never acknowledged without a recorded outcome"
PACE = "one try for each deferral, never before its time"
ENDS = "from everywhere, quiescence with an outcome is reachable without the environment's help"
CAUSE = "the delivery limit never condemns a job when nothing crashed"
NEXT_STEP = "at quiescence, what comes after a job that is done has been sent"
NO_GHOST = "no effect of a job whose producer's transaction did not commit"
PROMISES = (ONE_EFFECT, AGREEMENT, ONE_DECISION, NO_LOSS, ACK_ON_PROOF, PACE, ENDS, CAUSE, NEXT_STEP, NO_GHOST)


class Row(NamedTuple):
    """The job's inbox row."""

    generation: int
    attempts: int = 0
    deliveries: int = 0
    dispatches: int = 0  # 0, 1, or 2 for "more than once"
    leased: bool = False
    due: bool = True
    names_letter: bool = False


class Message(NamedTuple):
    """One message in the broker."""

    generation: int
    redelivered: bool = False
    again: bool = False  # the relay has dispatched this generation before


class Copy(NamedTuple):
    """One delivery in a worker's hand."""

    message: Message
    at: str
    acts_as: int  # the generation it works under: the message's, or 0 after it moved its job to the inbox
    failure: str = ""
    owner: bool = True  # False: the broker has given the message to somebody else, an ack means nothing
    era: int = -1  # how many deferrals and replays had happened when its handler started


class Detached(NamedTuple):
    """A transaction whose client is gone. It keeps its locks until the server commits or drops it."""

    what: str  # "work" or the failure whose verdict it is
    acts_as: int
    may_commit: bool


class State(NamedTuple):
    """Everything there is. ``effects``, ``era``, ``pruned`` and ``broken`` are the observer's, not the system's."""

    fence: str = ""  # "" (no row), done, waiting, dead
    row: Row | None = None
    letter: str = ""  # "", pending, replayed, resolved, discarded
    effects: int = 0
    sent: bool = False  # what comes after the job, at least once: more is a duplicate by its stable id
    era: int = 0
    queue: tuple[Message, ...] = ()
    hands: tuple[Copy, ...] = ()
    detached: tuple[Detached, ...] = ()
    relay: Message | None = None  # leased and committed, not yet published
    producers: int = 0  # producers that have not begun their transaction
    enqueuing: str = ""  # where the one at work stands: "open", "late publish" (known bad)
    wanted: bool = True  # somebody has committed that the job is to be done (the observer's)
    looks: int = 0  # operators who have looked and not yet acted (known-bad replay only)
    crashes: int = 0  # what is left of the environment's budget
    duplicates: int = 0
    losses: int = 0
    replays: int = 0
    pruned: bool = False
    broken: str = ""  # what the step that led here broke


@dataclass(frozen=True)
class Variant:
    """Switches that turn the design into something known to be wrong. The defaults are the design."""

    ack_first: bool = False
    fetch: str = "one step"  # or "two steps": a broker's client takes a message, and notes then that it holds it
    verdict_takes_fence: bool = True
    fence: str = "inside"  # or "before", "after": committed apart from the work
    retry: str = "inbox"  # or "publish": Celery's own way, a new message and then the ack
    retry_id: str = "same"  # or "fresh": what a published retry is called
    prune_waits: bool = True
    generation_checked: bool = True
    replay_takes_fence: bool = True
    redelivery_counted: bool = True
    lost_answer: str = "ask the fence"  # or "success": a lost COMMIT answer is taken for a commit
    late_row_removed: bool = True  # a relay copy that meets a 'dead' fence removes its own inbox row
    replay_overwrites_row: bool = True  # a replay that finds an inbox row makes it its own: generation, letter
    duplicate_sends: bool = True  # a copy that finds its job done sends what comes after it
    row_outlives_work: bool = True  # the inbox row of a job that is done stays until what comes after it is sent
    busy_forgives: bool = True  # a relay copy that found the fence busy takes its delivery back
    enqueue: str = "inside"  # or "before", "after": published apart from the producer's transaction (a dual write)


@dataclass(frozen=True)
class World:
    """What surrounds the job: how its handler behaves and how much may go wrong."""

    name: str
    # Each run ends in any of: ok, transient, permanent, invalid, not ready, kill child, kill worker.
    handler: frozenset[str]
    copies: int = 2
    slots: int = 2  # copies that workers hold at a time; the others are in the broker
    relayed: int = 2  # relay copies about at a time
    enqueued: bool = False
    producers: int = 0  # transactions that enqueue the job, each committed, rolled back or killed
    tries: int = 2
    max_deliveries: int = 2
    crashes: int = 1
    duplicates: int = 1
    losses: int = 1
    replays: int = 1
    not_ready: int = 1  # how often a handler says so
    variant: Variant = field(default_factory=Variant)

    def start(self) -> State:
        """The state before anything has happened."""
        return State(
            row=Row(0) if self.enqueued else None,
            producers=self.producers,
            wanted=not self.producers or self.copies > 0,
            queue=(Message(BROKER),) * self.copies,
            crashes=self.crashes,
            duplicates=self.duplicates,
            losses=self.losses,
            replays=self.replays,
        )


def quiet(s: State) -> bool:
    """Nothing is left to do: no message, no copy, no open transaction, no row that the relay would send."""
    return not (s.queue or s.hands or s.detached or s.relay or s.row or s.looks or s.producers or s.enqueuing)


def recorded(s: State) -> bool:
    """Whether the database, as committed, accounts for the job."""
    return s.effects > 0 or s.row is not None or s.letter in ("pending", "discarded") or not s.wanted


def violations(s: State) -> list[str]:
    """The promises that this state breaks."""
    found = [s.broken] if s.broken else []
    if s.effects > 1:
        found.append(ONE_EFFECT)
    if not s.pruned and (s.effects == 1) != (s.fence == "done"):
        found.append(AGREEMENT)
    if s.effects and not s.wanted:
        found.append(NO_GHOST)
    if quiet(s):
        if s.fence == "done" and s.letter in ("pending", "replayed"):
            found.append(ONE_DECISION)
        if not recorded(s):
            found.append(NO_LOSS)
        if s.fence == "done" and not s.sent:
            found.append(NEXT_STEP)
    return found
