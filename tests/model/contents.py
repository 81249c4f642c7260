"""A model of its own for one id that stands for two contents: what comes second is a letter, and nobody's duplicate.

Contents are numbers. The fence keeps the first one's; the other one is filed under an id of its own, which is a job of
its own from there on. The rest is as in the first model, with less of it: what a copy says of itself, which row is
whose, and what is removed when.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.model import breadth

BROKER = -1  # the generation of a producer's copy

KEPT = "no content is swallowed: at quiescence each has taken effect or has an open letter"
UNTOUCHED = "what a fence, a letter or a run under the id is about is the first content"
ONCE = "each content takes effect once"
APART = "a content that has run as the job is not filed beside it"
PROMISES = (KEPT, UNTOUCHED, ONCE, APART)


class Row(NamedTuple):
    """The inbox row of the id."""

    content: int
    generation: int
    replay: bool = False
    sent: bool = False


class Copy(NamedTuple):
    """A message with the broker, or in a worker's hand: `at` is where it stands there."""

    content: int
    generation: int
    again: bool = False  # redelivered, or sent before under the same generation: it is counted first
    at: str = ""  # count, take, work, busy, verdict
    acts_as: int = BROKER
    failure: str = ""


class State(NamedTuple):
    fence: str = ""
    first: int = -1
    row: Row | None = None
    letter: int = -1  # the content of the id's own open letter
    replayed: bool = False
    filed: tuple[str, ...] = ("", "")  # of each content's own letter: "", pending, replayed, done
    sent: tuple[bool, ...] = (False, False)
    effects: tuple[int, ...] = (0, 0)  # under the id
    others: tuple[int, ...] = (0, 0)  # under each content's own id
    queue: tuple[Copy, ...] = ()
    hands: tuple[Copy, ...] = ()
    drawn: int = 0
    enqueues: tuple[int, ...] = ()
    crashes: int = 0
    duplicates: int = 0
    failures: int = 0
    expiries: int = 0
    replays: int = 0
    broken: str = ""


@dataclass(frozen=True)
class Variant:
    """Switches to what is known to be wrong. The defaults are the design."""

    compares: bool = True  # False: whatever finds the fence decided is a duplicate
    files_apart: bool = True  # False: the letter of the second is written under the first one's id
    replays_apart: bool = True  # False: its replay runs under the first one's id
    count_compares: bool = True  # False: a copy that is counted takes the waiting row for its own
    fresh_behind_evicted: bool = True  # False: a row that takes an evicted one's place has its generation
    removes_its_own: bool = True  # False: a copy removes the row of its generation, whatever is in it
    replay_files: bool = True  # False: a replay removes a row that is in its way


@dataclass(frozen=True)
class World:
    """`copies`: the contents that producers send; `enqueues`: those that they put into the inbox, at any time."""

    name: str
    copies: tuple[int, ...]
    enqueues: tuple[int, ...] = ()
    crashes: int = 0
    duplicates: int = 0
    failures: int = 0
    expiries: int = 0
    replays: int = 0
    permanent: bool = False
    variant: Variant = field(default_factory=Variant)

    def start(self) -> State:
        sent = tuple(content in self.copies for content in (0, 1))
        return State(
            sent=sent,
            queue=tuple(Copy(content, BROKER) for content in sorted(self.copies)),
            enqueues=self.enqueues,
            crashes=self.crashes,
            duplicates=self.duplicates,
            failures=self.failures,
            expiries=self.expiries,
            replays=self.replays,
        )


Step = tuple[str, State]


def put(values: tuple[Any, ...], at: int, value: object) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])


def without(copies: tuple[Copy, ...], one: Copy) -> tuple[Copy, ...]:
    rest = list(copies)
    rest.remove(one)
    return tuple(rest)


def hand(s: State, old: Copy, new: Copy | None = None) -> State:
    """One delivery goes on, or is acknowledged."""
    hands = without(s.hands, old)
    return s._replace(hands=tuple(sorted((*hands, new))) if new else hands)


def file(s: State, content: int) -> State:
    """The letter of the second content; there may be one already."""
    if s.effects[content]:
        s = s._replace(broken=APART)
    return s._replace(filed=put(s.filed, content, s.filed[content] or "pending"))


def held(s: State) -> bool:
    """A transaction that works holds the fence."""
    return any(copy.at == "work" for copy in s.hands)


def steps(s: State, world: World) -> Iterator[Step]:
    """Every next step and the state after it."""
    for content in sorted(set(s.enqueues)):
        yield f"enqueue {content}", _enqueue(s, content)
    for copy in dict.fromkeys(s.queue):
        if len(s.hands) < 2:
            at = "count" if copy.again else "take"
            mine = copy._replace(at=at, acts_as=copy.generation)
            taken = s._replace(queue=without(s.queue, copy), hands=tuple(sorted((*s.hands, mine))))
            yield f"deliver {copy.content} of generation {copy.generation}", taken
        if s.duplicates:
            twice = tuple(sorted((*s.queue, copy._replace(again=True))))
            yield "a copy comes twice", s._replace(queue=twice, duplicates=s.duplicates - 1)
    row = s.row
    if row is not None and (not row.sent or s.expiries):
        message = Copy(row.content, row.generation, again=row.sent)
        gone = s._replace(row=row._replace(sent=True), queue=tuple(sorted((*s.queue, message))))
        yield "the relay sends", gone._replace(expiries=s.expiries - row.sent)
    yield from _people(s, world)
    for copy in dict.fromkeys(s.hands):
        yield from _of_hand(s, copy, world)


def _enqueue(s: State, content: int) -> State:
    """New, the same again, or refused: then its producer has been told, and nothing of it is owed."""
    rest = list(s.enqueues)
    rest.remove(content)
    s = s._replace(enqueues=tuple(rest))
    if s.row is None and s.fence not in ("done", "dead"):
        return s._replace(row=Row(content, 0), sent=put(s.sent, content, True))
    return s


def _people(s: State, world: World) -> Iterator[Step]:
    if s.replays and s.letter >= 0 and not s.replayed and not held(s):
        after = s._replace(replays=s.replays - 1, drawn=s.drawn + 1)
        if s.row is not None and s.row.content != s.letter and world.variant.replay_files:
            after = file(after, s.row.content)
        row = Row(s.letter, s.drawn + 1, replay=True)
        yield "replay", after._replace(fence="waiting", row=row, replayed=True)
    for content in (0, 1):
        if s.filed[content] == "pending" and s.replays:
            after = s._replace(replays=s.replays - 1, filed=put(s.filed, content, "replayed"))
            if not world.variant.replays_apart and not held(s):
                after = after._replace(fence="waiting", row=Row(content, s.drawn + 1), drawn=s.drawn + 1)
            yield f"replay what was filed of {content}", after
        if s.filed[content] == "replayed" and world.variant.replays_apart:
            done = s._replace(filed=put(s.filed, content, "done"), others=put(s.others, content, s.others[content] + 1))
            yield f"{content} runs under its own id", done


def _of_hand(s: State, c: Copy, world: World) -> Iterator[Step]:
    if s.crashes:
        back = c._replace(again=True, at="", acts_as=BROKER, failure="")
        yield "the worker is killed", hand(s, c)._replace(queue=tuple(sorted((*s.queue, back))), crashes=s.crashes - 1)
        if c.at == "work":
            dead = c._replace(at="count" if c.again else "verdict", acts_as=c.generation, failure="transient")
            yield "the child is killed", hand(s, c, dead)._replace(crashes=s.crashes - 1)
    if c.at == "count":
        yield f"count {c.content}", _count(s, c, world)
    elif c.at == "take":
        yield f"take the fence for {c.content}", _take(s, c, world)
    elif c.at == "work":
        yield f"{c.content} succeeds", _done(s, c)
        if s.failures:
            for failure in ("transient", "permanent") if world.permanent else ("transient",):
                failed = c._replace(at="verdict", failure=failure)
                yield f"{c.content} fails: {failure}", hand(s, c, failed)._replace(failures=s.failures - 1)
    elif c.at == "verdict":
        if not held(s):
            yield f"verdict on {c.content}", _verdict(s, c, world)
    elif c.at == "busy":
        yield f"{c.content} stands aside", _aside(s, c)


def _is_mine(s: State, acts_as: int) -> bool:
    return s.row is not None and s.row.generation == acts_as


def _count(s: State, c: Copy, world: World) -> State:
    """Count the delivery; a producer's copy moves its job into the inbox."""
    v = world.variant
    if held(s):
        return hand(s, c, c._replace(at="busy"))
    goes_on = c._replace(at="verdict" if c.failure else "take")
    if c.acts_as != BROKER:
        return hand(s, c, goes_on) if _is_mine(s, c.acts_as) else _settle(s, c, world)
    if s.fence == "":
        row, evicted = s.row, False
        if row is not None and row.content != c.content and not row.replay:
            s, row, evicted = file(s, row.content), None, True
        if row is None:
            fresh = s.drawn + 1 if evicted and v.fresh_behind_evicted else 0
            row = Row(c.content, fresh, sent=True)
            s = s._replace(drawn=max(s.drawn, fresh))
        elif row.generation != 0:
            return hand(s, c)._replace(fence="waiting", first=c.content)
        adopted = goes_on._replace(acts_as=row.generation)
        return hand(s, c, adopted)._replace(fence="waiting", first=c.content, row=row._replace(sent=True))
    other = v.compares and v.count_compares and c.content != s.first
    if s.fence == "waiting" and _is_mine(s, 0) and not other:
        return hand(s, c, goes_on._replace(acts_as=0))
    return _settle(s, c, world)


def _takes(s: State, c: Copy) -> bool:
    if c.acts_as == BROKER:
        return s.fence == ""
    return s.fence in ("", "waiting") and _is_mine(s, c.acts_as)


def _take(s: State, c: Copy, world: World) -> State:
    if held(s):
        return hand(s, c, c._replace(at="busy"))
    if not _takes(s, c):
        return _settle(s, c, world)
    return hand(s, c, c._replace(at="work"))


def _settle(s: State, c: Copy, world: World) -> State:
    """The fence, or the row, is somebody else's: a conflict, a duplicate or stale."""
    v = world.variant
    after = hand(s, c)
    row = s.row
    if s.fence == "":
        if c.acts_as != BROKER and row is None:  # marks of the relay, and no trace of the job
            return hand(s, c, c._replace(at="take", acts_as=BROKER))
        return after
    alike = row is not None and (row.content == c.content or not v.removes_its_own)
    mine = row is not None and row.generation == c.acts_as and alike
    if v.compares and c.content != s.first:
        after = after._replace(row=None if mine else row)
        if v.files_apart:
            return file(after, c.content)
        return after._replace(fence="dead", letter=c.content, replayed=False)
    if s.fence == "done":
        gone = row is not None and (row.content == c.content if c.acts_as == BROKER else alike)
        return after._replace(row=None if gone else row, letter=-1)
    if s.fence == "dead" and mine:
        return after._replace(row=None)
    return after


def _done(s: State, c: Copy) -> State:
    s = _began(s, c)
    after = hand(s, c)._replace(fence="done", effects=put(s.effects, c.content, s.effects[c.content] + 1))
    if s.filed[c.content]:
        after = after._replace(broken=after.broken or APART)
    if c.acts_as == BROKER:
        return after
    assert s.row is not None
    return after._replace(row=None, letter=-1 if s.row.replay else s.letter)


def _began(s: State, c: Copy) -> State:
    """The fence is taken; it keeps the content that it has."""
    first = c.content if s.fence == "" else s.first
    return s._replace(first=first, broken=s.broken if first == c.content else UNTOUCHED)


def _verdict(s: State, c: Copy, world: World) -> State:
    if not _takes(s, c):
        return _settle(s, c, world)
    s = _began(s, c)
    after, row = hand(s, c), s.row
    if c.acts_as == BROKER and row is not None and row.content != c.content and not row.replay:
        after = file(after, row.content)
    replay = row is not None and row.replay
    if c.failure == "permanent":
        return after._replace(fence="dead", row=None, letter=c.content, replayed=False)
    return after._replace(fence="waiting", row=Row(c.content, s.drawn + 1, replay), drawn=s.drawn + 1)


def _aside(s: State, c: Copy) -> State:
    """It has waited too long; the inbox keeps the job, without a look at the fence."""
    if c.acts_as == BROKER:
        if s.row is None:
            return hand(s, c)._replace(row=Row(c.content, 0))
        if s.row.content != c.content:  # the fence is to decide first
            return hand(s, c, c._replace(at="count" if c.again else "take"))
    elif _is_mine(s, c.acts_as) and not held(s):
        assert s.row is not None
        return hand(s, c)._replace(row=s.row._replace(sent=False))
    return hand(s, c)


def violations(s: State) -> list[str]:
    """The promises that this state breaks."""
    found = [s.broken] if s.broken else []
    if sum(s.effects) > 1 or max(s.others) > 1:
        found.append(ONCE)
    if s.letter >= 0 and s.letter != s.first:
        found.append(UNTOUCHED)
    if not (s.queue or s.hands or s.row or "replayed" in s.filed):
        for content in (0, 1):
            done = s.effects[content] or s.others[content]
            if s.sent[content] and not (done or s.letter == content or s.filed[content] == "pending"):
                found.append(KEPT)
    return found


def search(world: World, look_for: tuple[str, ...] = PROMISES) -> tuple[str, int, list[str]]:
    """Breadth first: the first promise that is broken or '', how many states there are, the way there."""
    return breadth.search(world.start(), lambda s: steps(s, world), violations, look_for)


DESIGN = (
    World("both sent, twice, workers killed", (0, 1), duplicates=1, crashes=2),
    World("both sent, runs fail, a worker killed", (0, 1), failures=2, crashes=1, permanent=True),
    World("both sent, a run fails, twice, replays", (0, 1), failures=1, duplicates=1, replays=2, permanent=True),
    World("one enqueued, workers killed, a lease ends", (1,), (0,), crashes=2, expiries=1),
    World("one enqueued, everything once", (1,), (0,), 1, failures=1, expiries=1, replays=1, permanent=True),
    World("both enqueued and sent", (0, 1), (0, 1), crashes=1, expiries=1),
    World("one enqueued, both sent, replays", (0, 1), (0,), failures=1, duplicates=1, replays=2, permanent=True),
    World("one sent twice", (0, 0, 1), failures=1, replays=1, crashes=1, permanent=True),
)


def _bad(name: str, copies: tuple[int, ...] = (0, 1), enqueues: tuple[int, ...] = (), **what: Any) -> World:
    switches = Variant.__dataclass_fields__.keys()
    more = {key: value for key, value in what.items() if key not in switches}
    wrong = Variant(**{key: value for key, value in what.items() if key in switches})
    return World(name, copies, enqueues, permanent=True, variant=wrong, **more)


BAD = (
    (_bad("swallowed as a duplicate", compares=False), KEPT),
    (_bad("its letter is the first one's", files_apart=False), UNTOUCHED),
    (_bad("its replay runs as the first one", failures=1, replays=2, replays_apart=False), UNTOUCHED),
    (_bad("counted as the first one", duplicates=1, crashes=1, count_compares=False), UNTOUCHED),
    (_bad("in the place of an evicted row", (0, 1), (0,), duplicates=1, fresh_behind_evicted=False), UNTOUCHED),
    (_bad("a late copy removes any row", (0, 1), (0,), failures=1, removes_its_own=False), KEPT),
    (_bad("a replay removes what is in its way", failures=1, replays=1, replay_files=False), KEPT),
)
