"""`harness.prune` and `harness.replay`: Celery's doors to what the other tests of this folder try directly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from celery import Celery
from kombu.compression import compress
from sqlalchemy.orm import Session

from harness.core.message import Message
from harness.worker.decode import arguments_of
from harness.worker.harness import Harness
from tests.letters import SERVICE, Place


def app_of(url: str, **settings: Any) -> tuple[Celery, Harness]:
    app = Celery(SERVICE, broker="memory://", set_as_current=False)
    harness = Harness(app, database_url=url, sentry=False, **settings)

    def gate(session: Session, arguments: Mapping[str, Any]) -> bool:
        return bool(arguments["account"] == 7)

    @harness.job(name="pay", can_replay=gate, shared=False)
    def pay(session: Session, account: int, points: int = 1) -> None: ...

    return app, harness


@pytest.fixture
def app(place: Place) -> Iterator[Celery]:
    app, harness = app_of(place.url)
    yield app
    harness.close()


def run(app: Celery, name: str, *args: Any, **kwargs: Any) -> Any:
    return app.tasks[name].apply(args=args, kwargs=kwargs, throw=True).get()


def test_prune(place: Place, app: Celery) -> None:
    place.done("a")
    place.run("UPDATE core.processed_jobs SET processed_at = now() - interval '8 days'")
    assert run(app, "harness.prune") == {"fences": 1, "letters": 0, "failed": 0}


def test_sweep(place: Place, app: Celery) -> None:
    letter_id = place.dead("a")
    assert run(app, "harness.replay")["replayed"] == 1
    assert run(app, "harness.replay")["replayed"] == 0
    assert place.audit(letter_id)[0][1] == "harness.replay"


def test_letters_by_number(place: Place, app: Celery) -> None:
    first, second = place.dead("a"), place.dead("b", task="gateless")
    counts = run(app, "harness.replay", [first, second], actor="ann", reason="provider is back")
    assert counts == {"replayed": 2, "resolved": 0, "refused": 0, "failed": 0}
    assert place.audit(second) == [("replayed", "ann", "provider is back")]
    assert run(app, "harness.replay", letter_ids=[first, second])["refused"] == 2
    assert run(app, "harness.replay", letter_ids=[])["replayed"] == 0


def test_they_are_ordinary_late_acknowledged_tasks() -> None:
    app, _ = app_of("postgresql://nowhere/none")
    for name in ("harness.prune", "harness.replay", "harness.alert"):
        assert app.tasks[name].acks_late
        assert not getattr(app.tasks[name], "is_job", False)


def test_the_schedule() -> None:
    app, _ = app_of("postgresql://nowhere/none")
    schedule = app.conf.beat_schedule
    assert {name: entry["schedule"] for name, entry in schedule.items()} == {
        "harness.prune": 3600.0,
        "harness.replay": 60.0,
        "harness.alert": 60.0,
    }
    assert all(entry["options"]["expires"] == entry["schedule"] for entry in schedule.values())


def test_the_schedule_can_be_changed_and_switched_off() -> None:
    app, _ = app_of("postgresql://nowhere/none", prune_every=None, replay_every=5, alert_every=None)
    assert {name: entry["schedule"] for name, entry in app.conf.beat_schedule.items()} == {"harness.replay": 5.0}

    app = Celery("other", broker="memory://", set_as_current=False)
    mine = {"task": "mine", "schedule": 1.0}
    app.conf.update(
        beat_schedule={"mine": mine, "harness.prune": mine}, harness_replay_every=None, harness_alert_every=None
    )
    assert app.conf.beat_schedule
    Harness(app, database_url="postgresql://nowhere/none")  # after the configuration was read
    assert app.conf.beat_schedule == {"mine": mine, "harness.prune": mine}


MESSAGES = {
    "protocol 2": (b'[[1], {"b": 2}, {"callbacks": null}]', {}),
    "protocol 1": (b'{"id": "x", "task": "t", "args": [1], "kwargs": {"b": 2}}', {}),
    "compressed": (compress('[[1], {"b": 2}, {}]', "zlib")[0], {"compression": "application/x-gzip"}),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_arguments_are_read_as_a_worker_reads_them(name: str) -> None:
    body, headers = MESSAGES[name]
    app = Celery(set_as_current=False)
    args, kwargs = arguments_of(app, Message(body, "application/json", "utf-8", headers, {}, "q"))
    assert (list(args), dict(kwargs)) == ([1], {"b": 2})


def test_what_a_worker_refuses_to_read_is_refused() -> None:
    app = Celery(set_as_current=False)
    with pytest.raises(Exception, match="pickle"):
        arguments_of(app, Message(b"\x80\x04N.", "application/x-python-serialize", "binary", {}, {}, "q"))
