"""Is everything as the input says it must be? Each difference is a line of text."""

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import TypeVar

from examples.demo_kit.plan import Plan
from examples.demo_kit.state import State

T = TypeVar("T", bound=Hashable)


def differences(plan: Plan, state: State, outcomes: Counter[str]) -> list[str]:
    """Where the database, or what the worker said, differs from the plan. Empty: all agree."""
    return [
        *_counters("ledger", plan.ledger, state.ledger()),
        *_counters("activities of", plan.totals, state.totals()),
        *_letters(plan, state),
        *_fences(plan, state),
        *_equal("jobs left in the inbox", 0, state.waiting()),
        *_equal(
            "copies that found their job done, dead or waiting",
            len(plan.duplicates) + len(plan.late_duplicates),
            outcomes["duplicate"] + outcomes["stale"],
        ),
        *_equal("replays in the audit log", len(plan.replayed), state.audited()["replayed"]),
    ]


def _letters(plan: Plan, state: State) -> Iterator[str]:
    letters = state.letters()
    yield from _counters(
        "open letter of",
        Counter(plan.letters.items()),
        Counter((letter.job_id, letter.reason) for letter in letters if letter.open),
    )
    yield from _counters(
        "resolved letter of", Counter(plan.replayed), Counter(letter.job_id for letter in letters if not letter.open)
    )
    for letter in letters:
        tries = 5 if letter.reason == "exhausted" else 1
        yield from _equal(f"tries of letter {letter.id}", tries, letter.attempts)
        yield from _equal(f"failures kept in letter {letter.id}", tries, letter.failures)
    bodies = {sending.job_id: sending.body for sending in plan.first if sending.body is not None}
    for letter in letters:
        if letter.job_id in bodies and letter.body != bodies[letter.job_id]:
            yield f"letter {letter.id} does not hold the bytes that were sent"


def _fences(plan: Plan, state: State) -> Iterator[str]:
    expected = {line[0]: "done" for line in plan.ledger} | dict.fromkeys(plan.letters, "dead")
    yield from _counters("fence of", Counter(expected.items()), Counter(state.fences().items()))


def _counters(what: str, expected: Counter[T], found: Counter[T]) -> Iterator[str]:
    for key in sorted(expected.keys() | found.keys(), key=repr):
        yield from _equal(f"{what} {key}", expected[key], found[key])


def _equal(what: str, expected: int, found: int) -> Iterator[str]:
    if expected != found:
        yield f"{what}: {found}, expected {expected}"
