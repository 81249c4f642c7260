"""What an operator sees: blocked keys, what a job waits for, transactions that hold, a restored dump."""

from __future__ import annotations

import os

from harness.core.outcome import Dead
from harness.store import server
from tests.order.lane import BLOCKS, SERVICE, Lane
from tests.worker.forked import celery
from tests.worker.running import ROOT


def command(lane: Lane, *arguments: str) -> tuple[int, str]:
    """`celery -A tests.worker.app harness …` for the lane's service: exit code and output."""
    url = lane.database.url.render_as_string(hide_password=False)
    settings = {"BROKER_URL": "memory://", "HARNESS_DATABASE_URL": url, "TEST_SERVICE": SERVICE, "COLUMNS": "160"}
    done = celery(["-A", "tests.worker.app", "harness", *arguments], os.environ | settings, ROOT)
    return done.returncode, done.stdout + done.stderr


def blocked(lane: Lane) -> int:
    lane.put("a", "b", "c")
    lane.relay()
    outcome = lane.run("a", spec=BLOCKS, fail=KeyError("no"))
    lane.relay()
    assert isinstance(outcome, Dead)
    return outcome.letter_id


def test_blocked_keys(lane: Lane) -> None:
    assert "no key is blocked" in command(lane, "inbox", "--blocked")[1]
    letter = blocked(lane)
    code, text = command(lane, "inbox", "--blocked")
    head, first, second, *_ = text.splitlines()
    assert (code, head.split()) == (0, ["letter", "since", "waiting", "key"])
    assert (first.split()[0], first.split()[-2:], second) == (
        str(letter),
        ["2", "k"],
        "    t a: permanent, pending_review",
    )
    text = command(lane, "inbox")[1]
    assert f"key k, blocked by letter {letter}" in text
    assert "its turn" in text
    assert "blocks" in command(lane, "dead-letters", "show", str(letter))[1]


def test_a_restored_dump(lane: Lane) -> None:
    assert command(lane, "reorder", "--yes")[0] == 3
    blocked(lane)
    for table in ("inbox", "order_places"):
        lane.all(f"UPDATE core.{table} SET xid = (xid::text::bigint + 1000000000)::text::xid8")
    assert looked(lane).ahead == 3
    code, text = command(lane, "reorder")
    assert (code, "3 jobs have places of another server's transactions; nothing was done" in text) == (0, True)
    assert "3 places numbered anew" in command(lane, "reorder", "--yes")[1]
    assert looked(lane).ahead == 0


def test_a_transaction_that_holds_is_named(lane: Lane) -> None:
    with lane.transaction() as foreign:
        foreign.exec_driver_sql("SET LOCAL application_name = 'quarterly report'")
        foreign.exec_driver_sql("SELECT pg_current_xact_id()")
        lane.put("a", "b")
        lane.relay()
        found = looked(lane)
        assert found.held == 1
        assert any("quarterly report, idle in transaction, for " in one for one in found.transactions)
        foreign.rollback()


def looked(lane: Lane) -> server.OrderHeld:
    url = lane.database.url.render_as_string(hide_password=False)
    found = server.read(url, "core", SERVICE, thorough=True).order
    assert found is not None
    return found
