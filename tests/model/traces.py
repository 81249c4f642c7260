"""Is what really happened to a job a path of the model? What the model says happens unseen is filled in.

A trace is what stood committed after each transaction that changed it. Between two of them the model may take any steps
that change none of it: a message is received, a lease ends, a worker dies.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from .spec import State, World
from .steps import steps

S = TypeVar("S", bound=Hashable)


class Seen(NamedTuple):
    """What stands committed of one job. `tries`: those that its inbox row has spent; None without a row."""

    fence: str = ""
    tries: int | None = None
    letter: str = ""
    effects: int = 0


class TooMany(Exception):
    """There are more states to look at than were allowed."""


#: Misfortunes that a trace may need: crashes, losses of patience, answers lost; the likely ones first.
BUDGETS = (
    (0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (2, 0, 0), (1, 0, 1), (0, 1, 1), (0, 2, 0), (2, 1, 0),
    (1, 1, 1), (1, 2, 0), (3, 0, 0), (2, 2, 0), (2, 1, 1), (3, 1, 1),
)  # fmt: skip


def seen(s: State) -> Seen:
    """What an onlooker sees of a state."""
    return Seen(s.fence, None if s.row is None else s.row.attempts, s.letter, s.effects)


def first_misfit(
    trace: Sequence[Seen], world: World, limit: int = 60_000, budgets: Sequence[tuple[int, int, int]] = BUDGETS
) -> int | None:
    """The place of the first transaction that no path of the model explains; None where all are explained.

    Raises TooMany where the answer would take more than `limit` states for some budget of misfortunes.
    """
    furthest, cut_off = 0, False
    for crashes, duplicates, losses in budgets:
        try:
            place = _explained(trace, replace(world, crashes=crashes, duplicates=duplicates, losses=losses), limit)
        except TooMany:
            cut_off = True
            continue
        if place is None:
            return None
        furthest = max(furthest, place)
    if cut_off:
        raise TooMany(world.name)
    return furthest


def _explained(trace: Sequence[Seen], world: World, limit: int) -> int | None:
    def after(s: State) -> Iterable[State]:
        return (then for _, then, _ in steps(s, world))

    return explained(trace, world.start(), after, seen, limit)


def explained(
    trace: Sequence[Seen], start: S, after: Callable[[S], Iterable[S]], look: Callable[[S], Seen], limit: int
) -> int | None:
    """The same for any model: `after` has the states that may follow one, `look` what an onlooker sees of it.

    Raises TooMany.
    """
    here = [start]
    for place, wanted in enumerate(trace):
        here = list(_next(here, wanted, after, look, limit))
        if not here:
            return place
    return None


def _next(
    here: Iterable[S], wanted: Seen, after: Callable[[S], Iterable[S]], look: Callable[[S], Seen], limit: int
) -> set[S]:
    """The states in which `wanted` has just come to stand, from `here` by unseen steps and one that is seen."""
    found: set[S] = set()
    todo = list(here)
    known = set(todo)
    while todo:
        s = todo.pop()
        before = look(s)
        for then in after(s):
            if (now := look(then)) == wanted:
                found.add(then)
            if now == before and then not in known:
                known.add(then)
                todo.append(then)
        if len(known) > limit:
            raise TooMany(str(wanted))
    return found
