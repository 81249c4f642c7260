"""Ids of next steps, and how long they are held: without servers."""

import json
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
import tenacity
from amqp.exceptions import FrameSyntaxError, InternalError, NotFound, PreconditionFailed
from celery import Celery, chain, chord, group, signals
from celery.canvas import maybe_signature
from kombu.exceptions import OperationalError, SerializerNotInstalled
from redis.exceptions import DataError, ResponseError

from harness.worker import holding
from harness.worker.holding import Unpublished, hold
from harness.worker.naming import name, name_errbacks


@pytest.fixture
def app() -> Iterator[Celery]:
    made = Celery("ids", broker="memory://", backend="cache+memory://", set_as_current=False)
    previous = Celery("previous", set_as_current=False)
    made.set_current()  # as in a worker
    yield made
    previous.set_current()
    made.close()


@pytest.fixture
def sent() -> Iterator[list[tuple[str, str]]]:
    """Task and id of everything that is published."""
    found: list[tuple[str, str]] = []

    def note(headers: Any = None, **_: Any) -> None:
        found.append((headers["task"], headers["id"]))

    signals.before_task_publish.connect(note)
    yield found
    signals.before_task_publish.disconnect(note)


def linked(app: Celery, kind: str) -> Any:
    def s(task: str) -> Any:
        return app.signature(task)

    return {
        "task": s("a"),
        "chain": chain(s("a"), s("b")),
        "group": group(s("a"), chain(s("b"), s("c")), s("d")),
        "chord": chord([s("a"), chain(s("b"), s("c"))], chain(s("d"), s("e"))),
        "chain to a chord": chain(group(s("a"), s("b")), s("c"), s("d")),
        "nested": group(s("a"), chord([s("b")], s("c"))),
    }[kind]


@pytest.mark.parametrize("kind", ["task", "chain", "group", "chord", "chain to a chord", "nested"])
def test_a_linked_signature_has_the_same_ids_at_each_firing(
    app: Celery, sent: list[tuple[str, str]], kind: str
) -> None:
    wire = json.dumps(linked(app, kind))
    fired = []
    for job_id in ("j", "j", "other"):
        sent.clear()
        maybe_signature(name(json.loads(wire), "s/t", job_id, "link", 0), app=app).apply_async((1,))
        # Celery's own poller of a chord is no step.
        fired.append([(task, id_) for task, id_ in sent if task != "celery.chord_unlock"])
    assert fired[0]
    assert fired[0] == fired[1]
    assert not {id_ for _, id_ in fired[0]} & {id_ for _, id_ in fired[2]}
    assert len({id_ for _, id_ in fired[0]}) == len(fired[0])


def test_an_id_of_the_producer_stays(app: Celery) -> None:
    named = app.signature("a", options={"task_id": "order-1"})
    assert name(json.loads(json.dumps(named)), "s/t", "j", "chain")["options"]["task_id"] == "order-1"


def test_a_chords_body_names_its_errbacks(app: Celery) -> None:
    ids = []
    for _ in range(2):
        body = app.signature("body", options={"task_id": "b", "link_error": [app.signature("e"), app.signature("e")]})
        name_errbacks(body)
        ids.append([errback["options"]["task_id"] for errback in body["options"]["link_error"]])
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2


def test_hold() -> None:
    left = [OperationalError("away"), ConnectionError("away")]

    def do() -> str:
        if left:
            raise left.pop()
        return "sent"

    assert hold(do, 5.0, "a step") == "sent"
    with pytest.raises(Unpublished, match="a step could not be sent"):
        hold(lambda: _raise(OperationalError("away")), 0.3, "a step")
    hopeless = (
        TypeError("no"),
        KeyError("queue"),
        OverflowError("countdown"),
        struct.error("priority"),
        FrameSyntaxError("header"),
        SerializerNotInstalled("serializer"),
        DataError("group"),
    )
    for error in hopeless:
        with pytest.raises(type(error)):
            hold(lambda error=error: _raise(error), 60.0, "a step")
    wrapped = OperationalError("again and again")
    wrapped.__cause__ = InternalError("header")
    unknown = OperationalError("True")
    unknown.__cause__ = KeyError(True)
    for error in (AttributeError("shape"), NotFound("exchange"), PreconditionFailed("expiration"), wrapped, unknown):
        with pytest.raises(TypeError, match="a step can't be sent"):
            hold(lambda error=error: _raise(error), 0.3, "a step")
    with pytest.raises(TypeError, match="holds something else"):
        hold(lambda: _raise(ResponseError("WRONGTYPE Operation against a key")), 60.0, "a step")
    with pytest.raises(Unpublished):
        hold(lambda: _raise(ResponseError("MISCONF can't save")), 0.3, "a step")


def test_a_steps_own_fault_is_told_from_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the broker: where it serves others, what fails alike each time holds no process for the whole outage hold."""
    answers = iter([False, True])
    monkeypatch.setattr(holding, "broker_answers", lambda: next(answers))
    tries: list[float] = []

    def do() -> None:
        tries.append(time.monotonic())
        raise AttributeError("shape")

    monkeypatch.setattr(tenacity.nap.time, "sleep", lambda seconds: None)
    with pytest.raises(TypeError, match="a step can't be sent: AttributeError: shape"):
        hold(do, 600.0, "a step")
    assert len(tries) == 2 * holding.GIVEN_UP_AFTER, "first it was away, then it answered"


def test_does_the_broker_answer(app: Celery) -> None:
    assert holding.broker_answers()
    app.conf.update(broker_url="amqp://guest@127.0.0.1:1//", broker_connection_timeout=1)
    assert not holding.broker_answers()


def _raise(error: Exception) -> None:
    raise error
