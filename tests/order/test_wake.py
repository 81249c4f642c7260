"""The hint: heard at once, many as one, only one's own; and nothing but time is lost where it is not heard."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import text

from harness.relay import wake as relay_wake
from harness.relay.wake import WakeUp
from harness.store.dispatch import Caps
from harness.store.wake import channel
from tests.order.lane import GOES_ON, Lane


@pytest.fixture
def ear(lane: Lane) -> Iterator[WakeUp]:
    made = WakeUp(lane.database, "core", "s")
    assert made.listen()
    yield made
    made.close()


def _hint(lane: Lane, service: str = "s") -> None:
    """What a producer sends after its commit."""
    with lane.database.engine.begin() as connection:
        connection.execute(
            text("SELECT pg_notify(:channel, :service)"), {"channel": channel("core"), "service": service}
        )


def test_heard_at_once_and_many_as_one(lane: Lane, ear: WakeUp) -> None:
    for _ in range(5):
        _hint(lane)
    began = time.monotonic()
    time.sleep(0.2)
    assert ear.wait(30.0)
    assert not ear.wait(0.05)
    threading.Timer(0.3, _hint, (lane,)).start()
    assert ear.wait(30.0)
    assert time.monotonic() - began < 20


def test_of_ones_own_service_only(lane: Lane, ear: WakeUp) -> None:
    _hint(lane, "other")
    assert not ear.wait(0.3)


def test_a_connection_that_breaks_is_opened_again(lane: Lane, ear: WakeUp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_wake, "AGAIN", 0.0)
    ear._not_before = 0.0
    lane.all("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
    assert not ear.wait(0.5)
    assert ear.listen()
    _hint(lane)
    assert ear.wait(30.0)


def test_without_a_connection_it_waits_as_a_poll_does(database: str) -> None:
    from harness.store import Database

    nobody = Database("postgresql://nobody:x@127.0.0.1:1/nothing")
    ear = WakeUp(nobody, "core", "s")
    began = time.monotonic()
    assert not ear.wait(0.3)
    assert time.monotonic() - began >= 0.25
    nobody.dispose()


def test_the_end_of_a_job_wakes_where_another_one_waits(lane: Lane, ear: WakeUp) -> None:
    lane.put("a", "b")
    lane.put("alone", key="other")
    lane.put("free", key=None)
    lane.relay()
    lane.relay()
    lane.run("free")
    lane.run("alone")
    assert not ear.wait(0.2), "nobody waits behind these"
    lane.run("a")
    assert ear.wait(30.0)
    assert lane.relay() == ["b"]


def test_room_wakes_where_another_one_waits_for_it(lane: Lane, ear: WakeUp) -> None:
    caps = Caps({"s/t": 2})
    lane.put("free", key=None, task="free")
    lane.put("waits", key=None, task="free")
    lane.put("a", "b", "c", key=None)
    assert sorted(lane.relay(caps=caps)) == ["a", "b", "free", "waits"]
    lane.run("free", spec=replace(GOES_ON, task="free", consumer="s/free"))
    assert not ear.wait(0.2), "there is no limit to these"
    lane.run("a")
    assert ear.wait(30.0)
    assert lane.relay(caps=caps) == ["c"]
    lane.run("b")
    assert not ear.wait(0.2), "nobody waits for the room"
    lane.put("later", "much later", key=None)
    lane.all("UPDATE core.inbox SET available_at = now() + interval '1 hour' WHERE job_id LIKE '%later'")
    lane.run("c")
    assert not ear.wait(0.2), "these do not wait for room"


def test_room_after_a_failed_try_and_after_a_dead_child(lane: Lane, ear: WakeUp) -> None:
    caps = Caps(default=1)
    lane.put("a", "b", "c", key=None)
    assert lane.relay(caps=caps) == ["a"]
    lane.run("a", fail=ValueError("once"))
    assert ear.wait(30.0)
    [second] = lane.relay(caps=caps)
    lane.crash(second)
    assert ear.wait(30.0)


def test_room_is_looked_for_in_a_few_rows_however_many_wait(lane: Lane, ear: WakeUp) -> None:
    many = """INSERT INTO core.inbox (service, consumer, task, job_id, body, headers, properties, queue, available_at)
        SELECT 's', 's/' || (g % 2), 't', 'j' || g, 'x', '{}', '{}', 'q', now() + interval '1 hour'
        FROM generate_series(1, 20000) g"""
    lane.all(many)
    lane.all("ANALYZE core.inbox")
    sql = lane.store.wake._waiting % {"service": "'s'", "consumer": "'s/1'"}
    [plan] = lane.one(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}")
    assert plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"] < 200
    lane.store.wake.room_for(lane.database, "s", "s/1")
    assert ear.wait(30.0), "more than are looked at: one may be due"
    lane.store.wake.room_for(lane.database, "s", "s/none")
    assert not ear.wait(0.2)


def test_a_hint_that_cannot_be_sent_is_no_failure(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    lane.put("a", "b")
    lane.relay()
    monkeypatch.setattr(lane.store.wake, "_next", "SELECT nonsense")
    assert type(lane.run("a")).__name__ == "Completed"
    assert (lane.relay(), lane.mend(), lane.relay()) == ([], 1, ["b"])
