"""Breadth-first search over all interleavings; the first violation found is a shortest one."""

from __future__ import annotations

from array import array
from collections.abc import Collection
from dataclasses import dataclass

from .spec import ENDS, PROMISES, State, World, quiet, recorded, violations
from .steps import steps


@dataclass(frozen=True)
class Result:
    """What a search found: a broken promise with the way there, or none."""

    world: World
    states: int
    quiescent: int
    broken: str
    trace: tuple[tuple[str, State], ...]

    def __str__(self) -> str:
        verdict = f"BROKEN: {self.broken}" if self.broken else "holds"
        lines = [f"{self.world.name}: {self.states} states, {self.quiescent} quiescent: {verdict}"]
        for number, (label, s) in enumerate(self.trace):
            lines.append(f"  {number:2}. {label}\n        {describe(s)}")
        return "\n".join(lines)


def describe(s: State) -> str:
    """One line about what is committed and who is about."""
    row = "none"
    if s.row:
        row = f"generation {s.row.generation}, {s.row.attempts} tries, {s.row.deliveries} deliveries"
        row += ("" if s.row.due else ", not due") + (", leased" if s.row.leased else "")
    about = [f"{c.at}{'' if c.owner else ' (not ours any more)'}" for c in s.hands]
    return (
        f"fence={s.fence or 'none'} row=({row}) letter={s.letter or 'none'} effects={s.effects} "
        f"broker={len(s.queue)} hands=[{', '.join(about)}] detached={len(s.detached)}"
    )


def search(world: World, look_for: Collection[str] = PROMISES, limit: int = 2_000_000) -> Result:
    """Explore every state reachable in ``world`` until a promise in ``look_for`` is seen broken.

    Raises MemoryError when more than ``limit`` states are reached: the bounds are meant to be small.
    """
    start = world.start()
    number: dict[State, int] = {start: 0}
    states: list[State] = [start]
    came_from: list[tuple[int, str]] = [(-1, "start")]
    sources, targets = array("i"), array("i")  # the steps that need no help from the environment
    at = 0
    while at < len(states):
        s = states[at]
        for promise in violations(s):
            if promise in look_for:
                return Result(world, len(states), 0, promise, _trace(states, came_from, at))
        for label, after, helped in steps(s, world):
            found = number.get(after)
            if found is None:
                found = number[after] = len(states)
                if found >= limit:
                    raise MemoryError(f"{world.name}: more than {limit} states")
                states.append(after)
                came_from.append((at, label))
            if not helped:
                sources.append(at)
                targets.append(found)
        at += 1
    ends = [n for n, s in enumerate(states) if quiet(s) and recorded(s)]
    if ENDS in look_for:
        stuck = _first_that_cannot_end(len(states), sources, targets, ends)
        if stuck is not None:
            return Result(world, len(states), len(ends), ENDS, _trace(states, came_from, stuck))
    return Result(world, len(states), len(ends), "", ())


def _first_that_cannot_end(count: int, sources: array[int], targets: array[int], ends: list[int]) -> int | None:
    """Walk backwards from the good ends; what is not met can never get there."""
    before: list[list[int]] = [[] for _ in range(count)]
    for source, target in zip(sources, targets, strict=True):
        before[target].append(source)
    can_end = bytearray(count)
    for n in ends:
        can_end[n] = 1
    todo = list(ends)
    while todo:
        for n in before[todo.pop()]:
            if not can_end[n]:
                can_end[n] = 1
                todo.append(n)
    stuck = can_end.find(0)  # states are numbered in breadth-first order: the first is a nearest
    return None if stuck < 0 else stuck


def _trace(states: list[State], came_from: list[tuple[int, str]], at: int) -> tuple[tuple[str, State], ...]:
    way: list[tuple[str, State]] = []
    while at >= 0:
        before, label = came_from[at]
        way.append((label, states[at]))
        at = before
    return tuple(reversed(way))
