"""A model of its own for jobs with external effects: claim, call, done, and what may come in between.

A claim has a number. The inbox row carries it as its generation, so that the fence (`claimed`) and the row together say
whose claim it is. Time is one bit: whether the present claim's time is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.model import breadth

BROKER = 0  # the generation of a producer's copy; others are numbers from 1 on

CALLS = "one call for each word: the first, a failure that the handler told, a person's replay"
HONEST = "'done' if and only if the handler returned and its record is committed, once"
ALIVE = "no letter while the claim's own process is alive and in its time"
DECIDED = "no open letter beside a 'done' fence"
KEPT = "at quiescence the job is done or has its letter"
PROMISES = (CALLS, HONEST, ALIVE, DECIDED, KEPT)


class Hand(NamedTuple):
    """A delivery at work. `at`: claim, call, returned, failed, or dead: its process is, which its parent has to say."""

    at: str
    generation: int
    claim: int = 0
    stopped: bool = False


class State(NamedTuple):
    fence: str = ""
    row: int = -1  # the generation of the inbox row, -1 for none
    over: bool = False  # the time of the present claim
    letter: bool = False
    words: int = 1  # that somebody has given and no call has used
    records: int = 0  # what handlers have written and committed
    queue: tuple[int, ...] = ()
    hands: tuple[Hand, ...] = ()
    numbers: int = 0
    sends: int = 0
    kills: int = 0
    deaths: int = 0
    losses: int = 0
    stops: int = 0
    replays: int = 0
    broken: str = ""


@dataclass(frozen=True)
class Variant:
    """Switches to what is known to be wrong. The defaults are the design."""

    expired: str = "letter"  # or "run", "done"
    waits: bool = True  # False: a copy need not wait for the claim's time
    checks_claim: bool = True  # False: whoever returns writes 'done'
    parent_asks: bool = True  # False: the parent of a dead child takes any claim for its own
    keeps_message: bool = True  # False: the claim leaves no inbox row
    lost_done: str = "ask the fence"  # or "call again"


@dataclass(frozen=True)
class World:
    name: str
    copies: int = 2
    kills: int = 0  # children
    deaths: int = 0  # workers
    losses: int = 0
    stops: int = 0
    replays: int = 0
    fails: bool = False
    sends: int = 2
    variant: Variant = field(default_factory=Variant)

    def start(self) -> State:
        return State(
            queue=(BROKER,) * self.copies,
            sends=self.sends,
            kills=self.kills,
            deaths=self.deaths,
            losses=self.losses,
            stops=self.stops,
            replays=self.replays,
        )


def mine(s: State, number: int) -> bool:
    return s.fence == "claimed" and s.row == number


def move(s: State, old: Hand, new: Hand | None, **changes: object) -> State:
    hands = list(s.hands)
    hands.remove(old)
    return s._replace(hands=tuple(sorted([*hands, *([new] if new else [])])), **changes)  # type: ignore[arg-type]


def letter(s: State, number: int) -> State:
    """Give up the claim `number`."""
    alive = any(h.claim == number and h.at in ("call", "returned", "failed") and not h.stopped for h in s.hands)
    return s._replace(fence="dead", row=-1, letter=True, broken=ALIVE if alive and not s.over else s.broken)


def waiting(s: State, number: int) -> State:
    return s._replace(fence="waiting", row=number, numbers=number, over=False)


def steps(s: State, world: World) -> Iterator[tuple[str, State]]:
    """Every next step and the state after it."""
    if s.queue and len(s.hands) < 2:
        for generation in dict.fromkeys(s.queue):
            queue = list(s.queue)
            queue.remove(generation)
            hands = tuple(sorted((*s.hands, Hand("claim", generation))))
            yield f"deliver {generation}", s._replace(queue=tuple(queue), hands=hands)
    due = s.row >= 0 and (s.fence != "claimed" or s.over or not world.variant.waits)
    if due and s.sends and s.row not in s.queue:
        yield "relay sends", s._replace(queue=tuple(sorted((*s.queue, s.row))), sends=s.sends - 1)
    if s.fence == "claimed" and not s.over:
        held = any(h.claim == s.row and h.at in ("call", "returned", "failed") and not h.stopped for h in s.hands)
        if not held:  # a process in its limits is killed before that
            yield "the claim's time is over", s._replace(over=True)
    if s.letter and s.replays and s.fence == "dead":
        given = waiting(s, s.numbers + 1)
        yield "replay", given._replace(letter=False, replays=s.replays - 1, words=s.words + 1, sends=s.sends + 2)
    for hand in dict.fromkeys(s.hands):
        yield from _of_hand(s, hand, world)


def _of_hand(s: State, h: Hand, world: World) -> Iterator[tuple[str, State]]:
    v = world.variant
    if h.stopped:
        yield "let go", move(s, h, h._replace(stopped=False))
        return
    if h.at == "dead":
        if mine(s, h.claim) or (s.fence == "claimed" and not v.parent_asks):
            yield "the parent gives the claim up", letter(move(s, h, None), s.row)
        elif s.fence == "" or (s.fence == "waiting" and s.row == h.generation):
            yield "the parent: a failed try", waiting(move(s, h, None), s.numbers + 1)
            yield "the parent: the last try", move(s, h, None, fence="dead", row=-1, letter=True)
        else:
            yield "the parent: stale", move(s, h, None)
        return
    if s.kills:
        yield "the child is killed", move(s, h, h._replace(at="dead"), kills=s.kills - 1)
    if s.deaths:
        queue = tuple(sorted((*s.queue, h.generation)))
        yield "the worker is killed", move(s, h, None, deaths=s.deaths - 1, queue=queue)
    if s.stops and h.at in ("call", "returned"):
        yield "stopped", move(s, h, h._replace(stopped=True), stops=s.stops - 1)
    if h.at == "claim":
        yield from _claim(s, h, world)
    elif h.at == "call":
        called = s._replace(words=s.words - 1)
        yield "call, returns", move(called, h, h._replace(at="returned"))
        if world.fails:
            yield "call, fails", move(called, h, h._replace(at="failed"))
    elif h.at == "returned":
        yield from _done(s, h, world)
    elif h.at == "failed":
        if mine(s, h.claim):
            back = waiting(move(s, h, None), s.numbers + 1)
            yield "failure: waits", back._replace(words=s.words + 1)
            yield "failure: dead", move(s, h, None, fence="dead", row=-1, letter=True)
        else:
            yield "failure: too late", move(s, h, None)


def _claim(s: State, h: Hand, world: World) -> Iterator[tuple[str, State]]:
    v = world.variant
    free = s.fence == "" if h.generation == BROKER else s.fence in ("", "waiting") and s.row == h.generation
    if free:
        number = s.numbers + 1
        row = number if v.keeps_message else -1
        taken = s._replace(fence="claimed", row=row, numbers=number, over=False)
        if h.generation == BROKER and s.deaths < world.deaths:
            yield "delivered again: counted, it waits", move(waiting(s, number), h, h._replace(generation=number))
        yield "claim", move(taken, h, h._replace(at="call", claim=number))
        if s.losses:
            lost = taken._replace(losses=s.losses - 1)
            yield "claim, answer lost", move(lost, h, h._replace(claim=number))
    elif h.claim and mine(s, h.claim):
        yield "claimed before", move(s, h, h._replace(at="call"))
    elif s.fence == "claimed" and h.generation == s.row and (s.over or not v.waits):
        rest = move(s, h, None)
        if v.expired == "letter":
            yield "give up the claim", letter(rest, s.row)
        elif v.expired == "done":
            yield "call it done", rest._replace(fence="done", row=-1)
        else:
            number = s.numbers + 1
            again = s._replace(row=number, numbers=number, over=False)
            yield "run it again", move(again, h, h._replace(at="call", claim=number))
    else:
        yield "duplicate or stale", move(s, h, None)


def _done(s: State, h: Hand, world: World) -> Iterator[tuple[str, State]]:
    v = world.variant
    if mine(s, h.claim) or not v.checks_claim or not v.keeps_message:
        done = move(s, h, None, fence="done", row=-1, records=s.records + 1)
        yield "done", done
        if s.losses:
            # Committed or not, the writes are not at hand any more; the fence says which.
            yield "done, answer lost", done._replace(losses=s.losses - 1)
            lost = s._replace(losses=s.losses - 1)
            if v.lost_done == "call again":
                yield "lost, call again", move(lost, h, h._replace(at="call"))
            else:
                yield "not committed: unknown", letter(move(lost, h, None), h.claim)
    else:
        yield "too late", move(s, h, None)


def violations(s: State) -> list[str]:
    """The promises that this state breaks."""
    found = [s.broken] if s.broken else []
    if s.words < 0:
        found.append(CALLS)
    if s.records != (s.fence == "done"):
        found.append(HONEST)
    if s.letter and s.fence == "done":
        found.append(DECIDED)
    in_time = s.fence == "claimed" and not s.over
    quiet = not (s.queue or s.hands or s.row >= 0 or in_time)
    if quiet and s.sends and s.fence != "done" and not s.letter:
        found.append(KEPT)
    return found


def search(world: World, look_for: tuple[str, ...] = PROMISES) -> tuple[str, int, list[str]]:
    """Breadth first: the first promise that is broken or '', how many states there are, the way there."""
    return breadth.search(world.start(), lambda s: steps(s, world), violations, look_for, limit=200_000)


DESIGN = (
    World("a child and a worker killed, replay", kills=1, deaths=1, replays=1),
    World("a worker killed, an answer lost, replay", copies=1, deaths=1, losses=1, replays=1),
    World("stopped, a worker killed, replay", stops=1, deaths=1, replays=1),
    World("a handler that may fail, a child killed, stopped", copies=1, kills=1, stops=1, fails=True),
    World("a handler that may fail, an answer lost", losses=1, fails=True),
)
BAD = (
    (World("an uncompleted claim is run again", deaths=1, variant=Variant(expired="run")), CALLS),
    (World("an uncompleted claim is called done", deaths=1, variant=Variant(expired="done")), HONEST),
    (World("a claim is given up before its time", copies=1, variant=Variant(waits=False)), ALIVE),
    (World("'done' without a look at the claim: a letter", stops=1, variant=Variant(checks_claim=False)), DECIDED),
    (
        World("'done' without a look at the claim: twice", stops=1, replays=1, variant=Variant(checks_claim=False)),
        HONEST,
    ),
    (World("the parent takes any claim for its child's", kills=1, variant=Variant(parent_asks=False)), ALIVE),
    (World("the claim keeps no message", deaths=1, variant=Variant(keeps_message=False)), KEPT),
    (World("a lost answer to 'done' calls again", copies=1, losses=1, variant=Variant(lost_done="call again")), CALLS),
)
