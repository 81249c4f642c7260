"""One after another, in the order of the commits: what the relay sends, and what a copy does that comes out of turn."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from harness.core.errors import NotReady, RetryLater
from harness.core.outcome import Completed, Dead, Deferred, Duplicate, Outcome, Stale
from harness.store.inbox import InboxRow
from harness.store.order import HELD_BY_TRANSACTION, WAITS_ITS_TURN
from tests.order.lane import BLOCKS, Lane
from tests.publishing import in_turn


def dead(outcome: Outcome) -> int:
    assert isinstance(outcome, Dead), outcome
    return outcome.letter_id


def aside(outcome: Outcome) -> bool:
    return isinstance(outcome, Deferred) and outcome.failure.error_type == "OutOfTurn" and not outcome.spends_try


def test_one_after_another_and_keys_side_by_side(lane: Lane) -> None:
    lane.put("a", "b", "c")
    lane.put("x", key="other")
    lane.put("free 1", "free 2", key=None)
    assert sorted(lane.relay()) == ["a", "free 1", "free 2", "x"]
    assert lane.relay() == []
    assert lane.error("b") == WAITS_ITS_TURN
    for name, after in (("a", ["b"]), ("b", ["c"]), ("c", [])):
        assert isinstance(lane.run(name), Completed)
        assert lane.relay() == after
    assert lane.ran == ["a", "b", "c"]


def test_two_transactions_at_once_wait_for_nobody_and_commits_are_respected(lane: Lane) -> None:
    with lane.transaction() as first, lane.transaction() as second:
        for one in (first, second):
            one.exec_driver_sql("SET LOCAL lock_timeout = '200ms'")
        lane.put_on(first, "a1")
        lane.put_on(second, "b1")
        lane.put_on(first, "a2")
        second.commit()
        lane.put("c1")  # begun after that commit
        assert lane.relay() == [], "an older transaction may still put something before these"
        assert (lane.error("b1"), lane.error("c1")) == (HELD_BY_TRANSACTION, WAITS_ITS_TURN)
        first.commit()
    order = []
    for _ in range(4):
        lane.all("UPDATE core.inbox SET leased_until = NULL WHERE relay_error = :held", held=HELD_BY_TRANSACTION)
        [name] = lane.relay()
        order.append(name)
        assert isinstance(lane.run(name), Completed)
    assert order == ["a1", "a2", "b1", "c1"]


def test_a_long_transaction_holds_only_what_is_ordered_and_only_for_a_while(lane: Lane) -> None:
    with lane.transaction() as foreign:
        foreign.exec_driver_sql("SELECT pg_current_xact_id()")
        lane.put("a", "b")
        lane.put("free", key=None)
        assert lane.relay() == ["free"]
        assert lane.error("a") == HELD_BY_TRANSACTION
        again = lane.one("SELECT extract(epoch FROM leased_until - now()) FROM core.inbox WHERE job_id = 'a'")
        assert again < 5
        foreign.rollback()
    lane.all("UPDATE core.inbox SET leased_until = NULL WHERE job_id = 'a'")
    assert lane.relay() == ["a"]


def test_a_savepoint_has_the_place_of_its_transaction(lane: Lane) -> None:
    with lane.transaction() as user:
        lane.put_on(user, "a")
        with user.begin_nested():
            lane.put_on(user, "b")
        lane.put("later")
        user.commit()
    lane.put("last")
    rows = lane.all("SELECT job_id, xid::text FROM core.inbox ORDER BY xid, sequence")
    assert [row.job_id for row in rows] == ["a", "b", "later", "last"]
    assert rows[0].xid == rows[1].xid


@pytest.mark.parametrize("error", [ValueError("no"), RetryLater(0.0, "soon"), NotReady("not yet")])
def test_the_successor_waits_while_the_first_waits_for_its_next_try(lane: Lane, error: Exception) -> None:
    lane.put("a", "b")
    assert lane.relay() == ["a"]
    assert isinstance(lane.run("a", fail=error), Deferred)
    lane.all("UPDATE core.inbox SET available_at = now() + interval '1 hour' WHERE job_id = 'a'")
    assert (lane.relay(), lane.mend(), lane.relay()) == ([], 0, [])
    lane.all("UPDATE core.inbox SET available_at = now() WHERE job_id = 'a'")
    assert lane.relay() == ["a"]
    assert isinstance(lane.run("a"), Completed)
    assert lane.relay() == ["b"]


def test_after_a_dead_letter_the_key_goes_on(lane: Lane) -> None:
    lane.put("a", "b")
    lane.relay()
    dead(lane.run("a", fail=KeyError("no")))
    assert lane.relay() == ["b"]


@pytest.mark.parametrize("how", ["handler", "killed"])
def test_a_dead_letter_may_block_its_key(lane: Lane, how: str) -> None:
    lane.put("a", "b", "c")
    lane.put("x", key="other")
    lane.relay()
    if how == "handler":
        letter = dead(lane.run("a", spec=BLOCKS, fail=KeyError("no")))
    else:
        lane.crash("a", BLOCKS)
        lane.relay()
        letter = dead(lane.crash("a", BLOCKS))
    assert (lane.relay(), lane.mend(), lane.relay()) == ([], 0, [])
    with lane.database.begin() as session:
        [blocked] = lane.store.order.blocked(session, "s")
    assert (blocked["ordering_key"], blocked["letter_id"], blocked["waiting"]) == ("k", letter, 2)
    lane.discard(letter)
    assert lane.relay() == ["b"]
    with lane.database.begin() as session:
        assert lane.store.order.blocked(session, "s") == []
        assert lane.store.order.forget_places(session, "s", 10) == 1


def test_a_replay_goes_first_and_blocks_until_it_succeeds(lane: Lane) -> None:
    lane.put("a", "b")
    lane.relay()
    letter = dead(lane.run("a", spec=BLOCKS, fail=KeyError("no")))
    assert lane.relay() == []
    lane.replay(letter)
    assert lane.relay() == ["a"]
    assert dead(lane.run("a", spec=BLOCKS, fail=KeyError("again"))) == letter
    assert lane.relay() == []
    lane.replay(letter)
    assert lane.relay() == ["a"]
    assert isinstance(lane.run("a", spec=BLOCKS), Completed)
    assert lane.relay() == ["b"]
    assert lane.ran == ["a", "a", "a"]


def test_a_letter_blocks_only_what_comes_after_it(lane: Lane) -> None:
    lane.put("a", "b", "c")
    lane.relay()
    first = dead(lane.run("a", fail=KeyError("no")))
    lane.relay()
    second = dead(lane.run("b", spec=BLOCKS, fail=KeyError("no")))
    lane.replay(first)
    assert lane.relay() == ["a"]
    assert isinstance(lane.run("a"), Completed)
    assert lane.relay() == []
    lane.discard(second)
    assert lane.relay() == ["c"]


def test_a_replay_takes_its_old_place_before_what_is_with_the_broker(lane: Lane) -> None:
    lane.put("a", "b", "c")
    lane.relay()
    letter = dead(lane.run("a", fail=KeyError("no")))
    assert lane.relay() == ["b"]
    lane.replay(letter)
    assert lane.relay() == [], "b is with the broker"
    assert aside(lane.run("b"))
    assert lane.relay() == ["a"]
    assert lane.row("b").attempts == 0  # type: ignore[union-attr]
    assert isinstance(lane.run("a"), Completed)
    assert lane.relay() == ["b"]
    assert isinstance(lane.run("b"), Completed)
    assert lane.ran == ["a", "a", "b"]


def test_a_replay_waits_for_what_is_at_work(lane: Lane) -> None:
    lane.put("a", "b")
    lane.relay()
    letter = dead(lane.run("a", fail=KeyError("no")))
    lane.relay()

    def meanwhile() -> None:
        lane.replay(letter)
        assert lane.relay() == []
        lane.all("UPDATE core.inbox SET leased_until = now() - interval '1 s' WHERE job_id = 'a'")
        # Its lease has run out, which says nothing of the work: the copy finds out.
        lane.one("SELECT pg_sleep(0)")
        assert lane.relay() == []

    assert isinstance(lane.run("b", then=meanwhile), Completed)
    assert lane.relay() == ["a"]


def test_two_of_a_key_never_work_at_once_whatever_the_relay_does(lane: Lane) -> None:
    """b's lease has run out while it works; the replay of a is sent, and stands aside."""
    lane.put("a", "b")
    lane.relay()
    letter = dead(lane.run("a", fail=KeyError("no")))
    lane.relay(lease=0.0)

    def meanwhile() -> None:
        lane.replay(letter)
        assert lane.relay() == ["a"]
        assert aside(lane.run("a"))

    assert isinstance(lane.run("b", then=meanwhile), Completed)
    assert lane.relay() == ["a"]
    assert isinstance(lane.run("a"), Completed)
    assert lane.ran == ["a", "b", "a"]


def test_a_late_second_copy_of_the_first_runs_not_out_of_order(lane: Lane) -> None:
    lane.put("a", "b")
    lane.relay(lease=0.0)
    early = lane.copy("a")
    assert isinstance(lane.run("a", fail=ValueError("no")), Deferred)
    assert isinstance(lane.run(early), Stale)
    lane.relay()
    late = lane.copy("a")
    assert isinstance(lane.run("a"), Completed)
    assert lane.relay() == ["b"]
    outcomes: list[Outcome] = []
    assert isinstance(lane.run("b", then=lambda: outcomes.extend((lane.run(early), lane.run(late)))), Completed)
    assert [type(outcome) for outcome in outcomes] == [Duplicate, Duplicate]
    assert lane.ran == ["a", "a", "b"]


def test_a_job_that_comes_under_its_own_name_keeps_its_place(lane: Lane) -> None:
    """Put in under the task's name by who did not know its consumer; moved by the first worker that has it."""
    lane.put("a", task="old")
    lane.put("b")
    assert lane.relay() == ["a"]
    assert isinstance(lane.run("a"), Deferred)
    assert lane.relay() == ["a"]
    assert lane.sent["a"].consumer == "s/t"
    assert isinstance(lane.run("a"), Completed)
    assert lane.relay() == ["b"]


def test_a_job_that_is_also_sent_keeps_its_place(lane: Lane) -> None:
    lane.put("a", "b")
    assert isinstance(lane.run(lane.copy_of_producer("a"), fail=ValueError("no")), Deferred)
    assert lane.relay() == ["a"]
    assert lane.relay() == []


def test_the_same_job_again_keeps_its_place(lane: Lane) -> None:
    lane.put("a", "b")
    with lane.transaction() as user:
        statement = lane.store.enqueueing.insert("s", [_entry(lane, "a")])
        assert user.execute(statement.sql, statement.values).all() == []
        user.commit()
    assert lane.relay() == ["a"]


def _entry(lane: Lane, name: str) -> Any:
    from harness.store.enqueueing import Entry

    return Entry(lane.arrival(name))


def test_who_dies_before_it_passes_the_turn_on_costs_a_moment(lane: Lane) -> None:
    lane.put("a", "b")
    lane.relay()
    lane.relay()
    lane.all("DELETE FROM core.inbox WHERE job_id = 'a'")  # as committed by a process that was killed right then
    assert lane.relay() == []
    assert lane.mend() == 1
    assert lane.relay() == ["b"]


def published_to(lane: Lane, published: list[str]) -> Any:
    def publish(row: InboxRow) -> None:
        lane.sent[row.job_id] = row
        published.append(row.job_id)

    return in_turn(publish)


def test_many_relays_send_one_of_a_key(lane: Lane) -> None:
    for number in range(40):
        lane.put(*(f"{number}-{n}" for n in range(5)), key=f"key {number}")
    for _ in range(5):
        published: list[str] = []
        relays = [lane.make_relay(batch=7) for _ in range(4)]
        for relay in relays:
            relay.publish = published_to(lane, published)
        threads = [threading.Thread(target=lambda r=relay: [r.step() for _ in range(60)]) for relay in relays]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(published) == 40
        assert len({name.split("-")[0] for name in published}) == 40
        for name in published:
            assert isinstance(lane.run(name), Completed)
    by_key: dict[str, list[str]] = {}
    for name in lane.ran:
        by_key.setdefault(name.split("-")[0], []).append(name.split("-")[1])
    assert set(map(tuple, by_key.values())) == {("0", "1", "2", "3", "4")}


def test_a_restored_dump_is_found_and_put_in_order(lane: Lane) -> None:
    lane.put("a", "b", "c")
    lane.relay()
    letter = dead(lane.run("a", spec=BLOCKS, fail=KeyError("no")))
    for table in ("inbox", "order_places"):
        lane.all(f"UPDATE core.{table} SET xid = (xid::text::bigint + 1000000000)::text::xid8")
    lane.put("new")
    with lane.database.begin() as session:
        assert lane.store.order.ahead(session, "s") == 3
        assert lane.store.order.renumber(session, "s") == 3
        assert lane.store.order.ahead(session, "s") == 0
    lane.all("UPDATE core.inbox SET leased_until = NULL, relay_error = NULL")
    assert lane.relay() == []
    lane.replay(letter)
    for name in ("a", "b", "c", "new"):
        assert lane.relay() == [name]
        assert isinstance(lane.run(name), Completed)
