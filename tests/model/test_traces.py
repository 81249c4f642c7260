"""The checker of traces knows a path of the model from what is none."""

from __future__ import annotations

import pytest

from .spec import Variant, World
from .traces import Seen, first_misfit

FEW = ((0, 0, 0), (1, 0, 0))
ANY = frozenset({"ok", "transient", "permanent", "kill child"})


def world(copies: int = 1, producers: int = 0) -> World:
    plain = Variant(row_outlives_work=False)
    return World("w", ANY, copies=copies, producers=producers, tries=5, max_deliveries=5, variant=plain)


GOOD = {
    "done at once": [Seen("done", None, "", 1)],
    "third try": [Seen("waiting", 1), Seen("waiting", 2), Seen("done", None, "", 1)],
    "dead, replayed, done": [
        Seen("dead", None, "pending"),
        Seen("waiting", 0, "replayed"),
        Seen("done", None, "resolved", 1),
    ],
    "its worker died": [Seen("waiting", 0), Seen("done", None, "", 1)],
    "exhausted": [Seen("waiting", n) for n in (1, 2, 3, 4)] + [Seen("dead", None, "pending")],
}
BAD = {
    "two effects": ([Seen("done", None, "", 1), Seen("done", None, "", 2)], 1),
    "an effect, no fence": ([Seen("", None, "", 1)], 0),
    "a fence, no effect": ([Seen("done", None, "", 0)], 0),
    "a letter, and done": ([Seen("dead", None, "pending"), Seen("done", None, "pending", 1)], 1),
    "waits without a row": ([Seen("waiting", 1), Seen("waiting", None)], 1),
    "a try is forgotten": ([Seen("waiting", 2)], 0),
    "dead, and its row is left": ([Seen("waiting", 1), Seen("dead", 1, "pending")], 1),
    "dead without a letter": ([Seen("waiting", 1), Seen("dead", None)], 1),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_path(name: str) -> None:
    assert first_misfit(GOOD[name], world()) is None


@pytest.mark.parametrize("name", BAD)
def test_no_path(name: str) -> None:
    trace, place = BAD[name]
    assert first_misfit(trace, world(), budgets=FEW) == place


def test_enqueued() -> None:
    trace = [Seen("", 0), Seen("done", None, "", 1)]
    assert first_misfit(trace, world(copies=0, producers=1)) is None
    assert first_misfit(trace[1:], world(copies=0, producers=1), budgets=FEW) == 0, (
        "nobody has sent it beside the inbox"
    )
