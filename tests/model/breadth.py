"""Every state of a small world, breadth first: the shortest way to one that breaks a promise."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import TypeVar

S = TypeVar("S")


def search(
    start: S,
    steps: Callable[[S], Iterable[tuple[str, S]]],
    violations: Callable[[S], Iterable[str]],
    look_for: Container[str],
    limit: int = 400_000,
) -> tuple[str, int, list[str]]:
    """The first promise that is broken or '', how many states there are, and the labels of the way there."""
    came: dict[S, tuple[S | None, str]] = {start: (None, "start")}
    todo = [start]
    for s in todo:
        for promise in violations(s):
            if promise in look_for:
                return promise, len(todo), _way(came, s)
        for label, after in steps(s):
            if after not in came:
                came[after] = (s, label)
                todo.append(after)
                assert len(todo) < limit, "the bounds of the world are too wide"
    return "", len(todo), []


def _way(came: dict[S, tuple[S | None, str]], s: S) -> list[str]:
    way: list[str] = []
    at: S | None = s
    while at is not None:
        before, label = came[at]
        way.append(f"{label}: {at}")
        at = before
    return way[::-1]
