"""Sources that the app declares, and receivers that take in from them: is each of them seen at work?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from harness.store.migrate import downgrade
from tests.check.doctor import Patient, patient
from tests.receive.running import Receiver
from tests.worker.running import State, until


def sources(*names: str) -> Any:
    def declare(harness: Any) -> None:
        @harness.job(name="take", shared=False)
        def take(session: Session, item: str = "") -> None: ...

        for name in names:
            harness.source(name, job=take, queue=name)

    return declare


def asked(database: str, *names: str, receive: str = "worker") -> Patient:
    return Patient(
        database, "memory://", {"harness_service": "tests", "harness_receive": receive}, jobs=sources(*names)
    )


def seen(sick: Patient) -> list[tuple[str, str]]:
    found = [row for row in sick.report()["findings"] if row["name"] == "receiver-seen"]
    return [(row["verdict"], row["what"]) for row in found]


@pytest.fixture
def receiver(redis_url: str, database: str, tmp_path: Path) -> Iterator[Receiver]:
    made = Receiver(redis_url, database, tmp_path / "log", "orders", "github")
    yield made
    made.kill()


def test_a_receiver_is_seen_for_its_own_sources_while_it_lives(receiver: Receiver, database: str) -> None:
    state = State(database)
    both, one = asked(database, "orders", "github"), asked(database, "orders", "strict", receive="off")
    never = ("warning", "No receiver of the source 'orders' was ever seen.")
    assert seen(both)[0] == never
    assert both.report("--strict", "--accept", "broker-transport", "--accept", "beat-seen")["code"] == 1
    receiver.start()
    until(lambda: seen(both)[0][0] == "ok", 60, "it is seen")
    [(_, text)] = seen(both)
    assert text.startswith("Seen: orders on ")
    assert "github on " in text
    assert seen(one) == [("warning", "No receiver of the source 'strict' was ever seen; harness_receive = \"off\".")]
    assert receiver.stop() == 0
    state.sql("UPDATE core.presence SET seen_at = now() - interval '300 seconds' WHERE role = 'receiver'")
    assert [text.partition(" (")[0] for _, text in seen(both)] == [
        "No receiver of the source 'orders' was seen for 300 s",
        "No receiver of the source 'github' was seen for 300 s",
    ]
    assert "Run `celery -A yourapp harness receive`" in both.findings()["receiver-seen"]["do"]
    for made in (both, one):
        made.close()
    state.close()


def test_without_sources_nobody_is_missed(database: str) -> None:
    with patient(database, "memory://") as sick:
        assert seen(sick) == [("ok", "")]


def test_a_schema_without_the_table(database: str) -> None:
    downgrade(database, revision="0001")
    sick = asked(database, "orders")
    [(verdict, text)] = seen(sick)
    assert (verdict, "no table presence" in text) == ("unknown", True)
    sick.close()
