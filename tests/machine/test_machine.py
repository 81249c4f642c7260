"""The machine runs; and it finds what is wrong with products that break a law."""

from __future__ import annotations

import logging

import pytest

from tests.machine.running import run
from tests.machine.variants import VARIANTS, Break

#: What has to have happened in a run, or it proves less than it says.
HAPPENED = (
    "completed 1",
    "duplicate",
    "stale False",
    "stale True",
    "deferred 1",
    "replayed",
    "enqueued",
    "side by side",
    "side by side, another content",
    "dead conflict",
    "conflict again",
    "refused ConflictingJob",
    "fault die",
    "fault lose",
    "fault unanswered",
)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "harness")


def test_the_laws_hold(database: str) -> None:
    done = run(database, examples=40, steps=50, shrink=False)
    print(f"machine: examples=40 steps={done.steps} {dict(done.seen.most_common())}")
    assert done.steps > 800
    assert [what for what in HAPPENED if not done.seen[what]] == []


@pytest.mark.parametrize("broken", VARIANTS, ids=lambda broken: str(broken.__name__))
def test_a_broken_law_is_found(broken: Break, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        run(database, examples=60, steps=40, shrink=False)
