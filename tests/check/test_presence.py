"""Signs of life of relays, receivers and beat, on this schema and on the one before."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import event

from harness.prune import prune
from harness.relay import Relay, SignOfLife
from harness.store.migrate import downgrade, upgrade
from harness.worker.receiver_sign import ReceivesFrom
from tests.check.doctor import patient
from tests.letters import Place
from tests.publishing import in_turn


@pytest.fixture
def place(database: str) -> Iterator[Place]:
    made = Place(database)
    yield made
    made.database.dispose()


def relay(place: Place, seconds: float, service: str = "billing") -> None:
    """Run a relay for so long."""
    stop = threading.Event()
    made = Relay(place.database, place.store, service, in_turn(lambda row: None), place.events, poll=0.01)
    runs = threading.Thread(target=made.run, args=(stop,))
    runs.start()
    time.sleep(seconds)
    stop.set()
    runs.join()


def age(place: Place, seconds: int) -> None:
    place.run(f"UPDATE core.presence SET seen_at = now() - interval '{seconds} seconds'")


def test_no_relay(place: Place) -> None:
    with patient(place.url, "memory://", {"harness_relay": "off"}) as sick:
        found = sick.findings()["relay-seen"]
        assert (found["verdict"], found["what"][:24]) == ("broken", "No relay was ever seen, ")
        assert sick.report()["code"] == 1

        relay(place, 0.5, service="another")
        assert sick.findings()["relay-seen"]["verdict"] == "broken"
        relay(place, 0.5)
        assert sick.findings()["relay-seen"]["verdict"] == "ok"

        age(place, 300)
        place.wait("late")
        place.run("UPDATE core.inbox SET available_at = now() - interval '200 seconds'")
        found = sick.findings()["relay-seen"]
        assert found["verdict"] == "broken"
        assert "No relay was seen for 30" in found["what"]
        assert "1 job is due, the oldest since 20" in found["what"]
    with patient(place.url, "memory://") as sick:
        assert "no worker of this service runs" in sick.findings()["relay-seen"]["what"]


def test_a_relay_leaves_few_signs(place: Place) -> None:
    written: list[str] = []

    @event.listens_for(place.database.engine, "before_cursor_execute")
    def _note(conn: object, cursor: object, statement: str, *rest: object) -> None:
        if "core.presence" in statement and statement.startswith("INSERT"):
            written.append(statement)

    relay(place, 1.0)
    assert len(written) == 1
    assert place.one("SELECT count(*) FROM core.presence WHERE seen_at <= now()") == 1


def test_a_relay_works_on_the_older_schema_and_gives_signs_after_the_upgrade(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.relay.sign.EVERY", 0.1)
    downgrade(place.url, revision="0001")
    place.wait("a")
    relay(place, 0.5)
    assert place.one("SELECT dispatches FROM core.inbox") == 1
    assert prune(place.database, place.store, "billing", 604_800, 7_776_000, place.events)["failed"] == 0
    upgrade(place.url)
    relay(place, 0.5)
    assert place.one("SELECT count(*) FROM core.presence") == 1


def test_a_sign_that_cannot_be_left_is_in_nobodys_way(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.relay.sign.EVERY", 0.1)
    place.run("ALTER TABLE core.presence ADD CHECK (false)")
    place.wait("a")
    relay(place, 0.5)
    assert place.one("SELECT dispatches FROM core.inbox") == 1


def test_beat(place: Place) -> None:
    with patient(place.url, "memory://") as sick:
        assert "No beat was ever seen" in sick.findings()["beat-seen"]["what"]
        sick.app.tasks["harness.replay"].apply(throw=True)
        assert sick.findings()["beat-seen"]["verdict"] == "ok"
        age(place, 400)
        found = sick.findings()["beat-seen"]
        assert (found["verdict"], found["what"]) == (
            "warning",
            "No beat was seen for 400 s; its tasks should run every 60 s.",
        )
        sick.app.tasks["harness.prune"].apply(throw=True)
        assert sick.findings()["beat-seen"]["verdict"] == "ok"
    with patient(place.url, "memory://", {"harness_prune_every": None, "harness_replay_every": None}) as sick:
        age(place, 4000)
        assert sick.findings()["beat-seen"]["verdict"] == "ok"


def test_a_replay_by_hand_is_no_sign_of_beat(place: Place) -> None:
    with patient(place.url, "memory://") as sick:
        sick.app.tasks["harness.replay"].apply(args=([],), throw=True)
        assert place.one("SELECT count(*) FROM core.presence") == 0


def test_a_receiver_leaves_a_sign_for_each_source_and_few(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with patient(place.url, "memory://", {"harness_service": "billing"}) as sick:
        sign = ReceivesFrom(sick.harness)
        signs = "SELECT service, role, split_part(name, '@', 1) FROM core.presence ORDER BY name"
        sign.give([])
        assert place.run(signs) == []
        sign.give(["orders"])
        sign.give(["orders", "github"])  # a queue that was missing is there now: it says so at once
        found = [tuple(row) for row in place.run(signs)]
        assert found == [("billing", "receiver", "github"), ("billing", "receiver", "orders")]
        age(place, 300)
        sign.give(["github", "orders"])
        assert place.one("SELECT count(*) FROM core.presence WHERE seen_at > now() - interval '100 s'") == 0
        monkeypatch.setattr("harness.relay.sign.EVERY", 0.0)
        ReceivesFrom(sick.harness).give(["github", "orders"])
        assert place.one("SELECT count(*) FROM core.presence WHERE seen_at > now() - interval '100 s'") == 2


def test_the_gone_are_pruned(place: Place) -> None:
    for service, name in (("billing", "old"), ("billing", "new"), ("shop", "old")):
        SignOfLife(place.database, place.store, service, "relay", name).give()
    place.run("UPDATE core.presence SET seen_at = now() - interval '8 days' WHERE name = 'old'")
    prune(place.database, place.store, "billing", 604_800, 7_776_000, place.events)
    assert sorted(map(tuple, place.run("SELECT service, name FROM core.presence"))) == [
        ("billing", "new"),
        ("shop", "old"),
    ]
