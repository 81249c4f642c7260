"""Runs the machine on a database."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from tests.machine.place import schema
from tests.machine.rules import Machine


def run(url: str, examples: int, steps: int, *, shrink: bool = True, of_seed: int | None = None) -> type[Machine]:
    """So many examples of so many steps: always the same ones, unless there is a seed. AssertionError, and the shortest
    way to it with `shrink`, where the product and the laws differ."""
    schema(url)

    class Counted(Machine):
        steps, seen, found = 0, Counter(), []

    Counted.url = url
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=of_seed is None,
        database=None,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    # Hypothesis reads a seed from the test, which here is the machine's class.
    machine = Counted if of_seed is None else seed(of_seed)(Counted)
    try:
        run_state_machine_as_test(machine, settings=chosen)
    except Flaky:
        # What was found once is found, also where a second run of the same steps goes another way.
        assert not Counted.found, Counted.found[0]
        raise
    return Counted
