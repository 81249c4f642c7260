"""The hint: heard at once, many as one, only one's own; and nothing but time is lost where it is not heard."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from harness.relay import wake as relay_wake
from harness.relay.wake import WakeUp
from tests.order.lane import Lane


@pytest.fixture
def ear(lane: Lane) -> Iterator[WakeUp]:
    made = WakeUp(lane.database, "core", "s")
    assert made.listen()
    yield made
    made.close()


def test_heard_at_once_and_many_as_one(lane: Lane, ear: WakeUp) -> None:
    for _ in range(5):
        lane.store.wake.relays(lane.database, "s")
    began = time.monotonic()
    time.sleep(0.2)
    assert ear.wait(30.0)
    assert not ear.wait(0.05)
    threading.Timer(0.3, lane.store.wake.relays, (lane.database, "s")).start()
    assert ear.wait(30.0)
    assert time.monotonic() - began < 20


def test_of_ones_own_service_only(lane: Lane, ear: WakeUp) -> None:
    lane.store.wake.relays(lane.database, "other")
    assert not ear.wait(0.3)


def test_a_connection_that_breaks_is_opened_again(lane: Lane, ear: WakeUp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_wake, "AGAIN", 0.0)
    ear._not_before = 0.0
    lane.all("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
    assert not ear.wait(0.5)
    assert ear.listen()
    lane.store.wake.relays(lane.database, "s")
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


def test_a_hint_that_cannot_be_sent_is_no_failure(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    lane.put("a", "b")
    lane.relay()
    monkeypatch.setattr(lane.store.wake, "_next", "SELECT nonsense")
    assert type(lane.run("a")).__name__ == "Completed"
    assert (lane.relay(), lane.mend(), lane.relay()) == ([], 1, ["b"])
