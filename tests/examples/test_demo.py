"""The demo on real servers, and that it would notice: each tampering with its result is a difference."""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from examples.demo_kit import check, plan
from examples.demo_kit.state import Letter, State
from tests.services import run_sql
from tests.worker.running import ROOT


def test_the_demo(empty_database: str, broker_url: str) -> None:
    env = os.environ | {"HARNESS_DATABASE_URL": empty_database, "CELERY_BROKER_URL": broker_url}
    done = subprocess.run(
        [sys.executable, "examples/demo.py"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    made = plan.make()
    last = done.stdout.splitlines()[-1]
    assert last == (
        f"demo: ok deliveries={made.deliveries} effects={made.ledger.total()} "
        f"duplicates={len(made.duplicates) + len(made.late_duplicates)} letters={len(made.letters)} "
        f"replayed={len(made.replayed)}"
    )
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert last in re.sub(r"\s+", " ", readme)
    left = run_sql(empty_database, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'ledger_demo%'")
    assert left == []


class Perfect:
    """What `State` would read when all is well; a test changes it."""

    def __init__(self, made: plan.Plan) -> None:
        self.ledger_ = made.ledger.copy()
        self.totals_ = made.totals
        self.fences_ = {line[0]: "done" for line in made.ledger} | dict.fromkeys(made.letters, "dead")
        self.waiting_ = 0
        self.audited_ = Counter({"replayed": len(made.replayed)})
        reasons = made.letters | dict.fromkeys(made.replayed, "permanent")
        bodies = {sending.job_id: sending.body for sending in made.first}
        self.letters_ = []
        for number, (job_id, reason) in enumerate(reasons.items()):
            tries, is_open = 5 if reason == "exhausted" else 1, job_id not in made.replayed
            self.letters_.append(
                Letter(number, job_id, "t", reason, tries, tries, "", "", is_open, bodies.get(job_id) or b"")
            )

    def __getattr__(self, name: str) -> Callable[[], Any]:
        return lambda: self.__dict__[f"{name}_"]


@pytest.fixture
def made() -> plan.Plan:
    return plan.make()


def differences(made: plan.Plan, state: Perfect, copies: int = 0) -> list[str]:
    outcomes = Counter({"duplicate": len(made.duplicates) + len(made.late_duplicates) + copies})
    return check.differences(made, cast(State, state), outcomes)


def test_a_perfect_run_has_no_difference(made: plan.Plan) -> None:
    assert differences(made, Perfect(made)) == []


def _twice(state: Perfect) -> None:
    state.ledger_[next(iter(state.ledger_))] += 1


def _lost(state: Perfect) -> None:
    del state.ledger_[next(iter(state.ledger_))]


def _miscounted(state: Perfect) -> None:
    state.totals_[plan.LATE] -= 1


def _no_letter(state: Perfect) -> None:
    state.letters_.pop(0)


def _still_open(state: Perfect) -> None:
    state.letters_[-1] = replace(state.letters_[-1], open=True)


def _other_reason(state: Perfect) -> None:
    state.letters_[0] = replace(state.letters_[0], reason="crashed", attempts=1, failures=1)


def _tries(state: Perfect) -> None:
    state.letters_[0] = replace(state.letters_[0], attempts=4)


def _bytes(state: Perfect) -> None:
    state.letters_ = [replace(letter, body=letter.body[:-1]) for letter in state.letters_]


def _fence(state: Perfect) -> None:
    state.fences_[next(iter(state.fences_))] = "waiting"


def _waits(state: Perfect) -> None:
    state.waiting_ = 1


def _unaudited(state: Perfect) -> None:
    state.audited_.clear()


@pytest.mark.parametrize(
    "tamper",
    [
        _twice,
        _lost,
        _miscounted,
        _no_letter,
        _still_open,
        _other_reason,
        _tries,
        _bytes,
        _fence,
        _waits,
        _unaudited,
    ],
)
def test_what_is_wrong_is_a_difference(made: plan.Plan, tamper: Callable[[Perfect], None]) -> None:
    state = Perfect(made)
    tamper(state)
    assert differences(made, state) != []


def test_a_copy_too_many_is_a_difference(made: plan.Plan) -> None:
    assert differences(made, Perfect(made), copies=1) != []
