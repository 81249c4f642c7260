"""A worker with its receiver: from a foreign message to the effect, and from a letter back through its source."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
from celery import Celery

from harness import Harness
from harness.replay import replay_many
from harness.store.store import Store
from tests.receive.conftest import Place
from tests.receive.running import message
from tests.worker.running import ForkedWorker, Worker, until
from tests.worker.wires import Raw


class WorkerWithSources(ForkedWorker):
    app = "tests.receive.app"


def test_from_message_to_effect_and_from_letter_to_message(place: Place, tmp_path: Path) -> None:
    state, wires = place.state, place.wires
    worker = WorkerWithSources(place.broker, place.database, tmp_path / "log", harness_receive="worker")
    bad = Raw(b'{"id": {"no": "text"}, "order": {"lines": [{"item": "tea"}]}}')
    wires.send(message("a"))
    wires.send(bad, "strict")
    wires.send(message("p", count="many"))
    until(lambda: state.inbox("a") and state.letters(), 60)
    assert place.receiver.stop() == 0
    worker.start()
    here = Harness(
        Celery("op", broker="memory://", set_as_current=False),
        service="tests",
        database_url=state.engine.url.render_as_string(hide_password=False),
    )
    try:
        until(lambda: worker.has_logged("receive: ready"), 60)
        until(lambda: state.settled("a") and state.settled("p"), 60)
        assert (state.effects("a"), state.letter("p").reason) == (1, "invalid_payload")
        wires.send(message("a"))  # done: not put in again
        wires.send(message("b"))
        until(lambda: state.settled("b") and worker.has_logged("state=done"), 60)
        assert (state.effects("a"), state.effects("b"), state.inbox("a")) == (1, 1, None)
        _conflict(here, state, wires)
        _replay(here, state)
        receiver = next(p for p in psutil.Process(worker.process.pid).children() if _has_queues(p, worker))
        os.kill(receiver.pid, signal.SIGKILL)
        # Not before: a Redis-protocol server may still hand a message to the connection of who is dead.
        until(lambda: worker.text().count("receive: ready") >= 2, 60, "another receiver was started")
        wires.send(message("c"))
        until(lambda: state.settled("c"), 60)
    finally:
        here.close()
        worker.stop()


def _has_queues(process: psutil.Process, worker: Worker) -> bool:
    return f"receiver pid={process.pid}" in worker.text()


def _conflict(here: Harness, state, wires) -> None:  # type: ignore[no-untyped-def]
    """Other content under the id of a job that is done, through the source and straight to the worker's queue."""
    wires.send(message("a", "coffee"))
    until(lambda: len(_conflicts(state)) == 1, 60)
    straight = Celery("client", broker=wires.connection.as_uri(include_password=True), set_as_current=False)
    straight.send_task("order", args=["tea"], task_id="a", queue="jobs")  # the same, by position
    straight.send_task("order", args=["coffee"], task_id="a", queue="jobs")  # the same conflict
    straight.send_task("order", args=["milk"], task_id="a", queue="jobs")
    until(lambda: len(_conflicts(state)) >= 2, 60)
    straight.send_task("order", args=["sugar"], task_id="end", queue="jobs")
    until(lambda: state.settled("end"), 60)
    straight.close()
    coffee, milk = _conflicts(state)
    assert (coffee.status, milk.status, state.effects("a"), state.fence("a")) == ("pending_review",) * 2 + (1, "done")
    for letter in (coffee, milk):
        _give_back(here, letter)
    until(lambda: all(state.settled(letter.job_id) for letter in (coffee, milk)), 60)
    notes = {row.job_id: row.note for row in state.sql("SELECT * FROM ledger WHERE starts_with(job_id, 'a#')")}
    assert notes == {coffee.job_id: "coffee 1", milk.job_id: "milk 1"}
    assert all(letter.resolved_at for letter in _conflicts(state))


def _conflicts(state):  # type: ignore[no-untyped-def]
    return [letter for letter in state.letters() if letter.reason == "conflict"]


def _replay(here: Harness, state) -> None:  # type: ignore[no-untyped-def]
    """Still unreadable: the same letter, once more. Put right: the message becomes a job."""

    def letter():  # type: ignore[no-untyped-def]
        return next(letter for letter in state.letters() if letter.consumer == "tests/receive:strict")

    _give_back(here, letter())
    until(lambda: (letter().status, letter().replays) == ("pending_review", 1), 60)
    assert [event["event"] for event in letter().lineage] == ["replayed", "failed_again"]
    good = b'{"id": "o-1", "order": {"lines": [{"item": "tea"}]}}'
    state.sql("UPDATE core.dead_letters SET body = :body WHERE id = :id", body=good, id=letter().id)
    _give_back(here, letter())
    until(lambda: letter().resolved_at is not None and state.settled("o-1"), 60)
    assert (state.fence(letter().job_id), state.effects("o-1")) == ("done", 1)


def _give_back(here: Harness, letter) -> None:  # type: ignore[no-untyped-def]
    assert replay_many(here.database, Store.of("core"), "tests", [letter.id], "op", here.events)["replayed"] == 1
