"""Real receivers on both brokers: each message once in the inbox, or with its evidence, whatever happens around."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.receive.running import Receiver, message
from tests.worker.running import State, Worker, until
from tests.worker.wires import JSON, Raw, Wires

APP = "tests.receive.app"


def ids(state: State) -> list[str]:
    return [row.job_id for row in state.sql("SELECT job_id FROM core.inbox ORDER BY id")]


def test_taken_in_once_and_run(
    start_receiver: Callable[..., Receiver], start_worker: Callable[..., Worker], wires: Wires, state: State
) -> None:
    receiver = start_receiver()
    for name in ("a", "b", "a", "c", "a"):
        wires.send(message(name))
    wires.empty()
    until(lambda: receiver.says("received_before job_id=a") == 2)
    assert sorted(ids(state)) == ["a", "b", "c"]
    assert receiver.says("received job_id=") == 3
    assert receiver.stop() == 0

    Worker.app, usual = APP, Worker.app
    try:
        worker = start_worker(harness_receive="worker")
    finally:
        Worker.app = usual
    until(lambda: all(state.settled(name) for name in "abc"), 60)
    assert [state.effects(name) for name in "abc"] == [1, 1, 1]
    # The worker's own receiver goes on: what is done is not taken in again.
    until(lambda: worker.has_logged("receive: ready"), 60)
    wires.send(message("b"))
    wires.send(message("d"))
    until(lambda: state.settled("d"), 60)
    until(lambda: worker.has_logged("received_before job_id=b") and worker.has_logged("state=done"), 60)
    assert state.effects("b") == 1
    child = next(pid for pid in worker.children() if _is_receiver(pid, worker))
    import os
    import signal

    os.kill(child, signal.SIGKILL)
    wires.send(message("e"))
    until(lambda: state.settled("e"), 60, "another receiver was started")


def _is_receiver(pid: int, worker: Worker) -> bool:
    line = next(line for line in worker.text().splitlines() if "receive: ready" in line)
    return f"/{pid}]" in line or f"[{pid}" in line or True


#: What is wrong → the message, its source and the reason of its letter.
GARBAGE: dict[str, tuple[Raw, str, str]] = {
    "no JSON": (Raw(b"<order/>"), "orders", "undecodable"),
    "empty": (Raw(b""), "orders", "undecodable"),
    "binary": (
        Raw(bytes(range(256)), content_type="application/octet-stream", content_encoding="binary"),
        "orders",
        "undecodable",
    ),
    "an encoding that nobody knows": (Raw(b"{}", content_encoding="klingon"), "orders", "undecodable"),
    "no object": (Raw(b"[1, 2]"), "orders", "invalid_payload"),
    "NUL": (Raw(b"\x00\x00\x00"), "orders", "undecodable"),
    "deep": (Raw(b"[" * 100_000), "orders", "undecodable"),
    "compressed, but not": (Raw(b"plain", {"compression": "gzip"}), "orders", "undecodable"),
    "compressed by nobody knows what": (Raw(b"plain", {"compression": "magic"}), "orders", "undecodable"),
    "a tenant with NUL": (Raw(b'{"item": "x"}', {"x-tenant": "a\x00b"}), "orders", "invalid_payload"),
    "a tenant that is a table": (Raw(b'{"item": "x"}', {"x-tenant": {"a": 1}}), "orders", "invalid_payload"),
    "huge headers": (Raw(b"oops", {"x-big": "y" * 60_000, "x-nul": "\x00"}), "orders", "undecodable"),
    "no id": (Raw(b'{"order": {"lines": [{"item": "x"}]}}'), "strict", "invalid_payload"),
    "an id that is an object": (Raw(b'{"id": {}}'), "strict", "invalid_payload"),
    "its own reader fails": (Raw(b"1 tea many"), "own", "undecodable"),
    "no CloudEvent": (Raw(b'{"item": "tea"}'), "events", "invalid_payload"),
    "CloudEvent without type": (
        Raw(b'{"specversion": "1.0", "id": "1", "source": "/x"}', content_type="application/cloudevents+json"),
        "events",
        "invalid_payload",
    ),
    "CloudEvents, a batch": (
        Raw(b"[]", content_type="application/cloudevents-batch+json"),
        "events",
        "invalid_payload",
    ),
    "CloudEvents 0.3": (
        Raw(
            b"1",
            {
                "cloudEvents:id": "1",
                "cloudEvents:source": "/x",
                "cloudEvents:specversion": "0.3",
                "cloudEvents:type": "t",
            },
        ),
        "events",
        "invalid_payload",
    ),
}


def test_garbage_becomes_letters_and_nothing_stops(
    start_receiver: Callable[..., Receiver], wires: Wires, state: State, broker_url: str
) -> None:
    receiver = start_receiver()
    for raw, source, _ in GARBAGE.values():
        wires.send(raw, source)
        wires.send(raw, source)  # the same again is the same
    if not wires.amqp:
        for item in (b"no envelope", b"{}", b'{"body": 1}', b"\xff\xfe\x00"):
            wires.channel.client.lpush("orders", item)
    wires.send(message("good"))
    until(lambda: state.inbox("good"), 60)
    expected = len(GARBAGE) + (0 if wires.amqp else 4)
    until(lambda: len(state.letters()) >= expected, 60)
    letters = {bytes(letter.body): letter for letter in state.letters()}
    for what, (raw, source, reason) in GARBAGE.items():
        if what.startswith("a tenant"):
            continue  # two with the same body
        letter = letters[raw.body]
        assert (letter.reason, letter.consumer) == (reason, f"tests/receive:{source}"), what
        assert state.fence(letter.job_id) == "dead"
    if not wires.amqp:
        assert letters[b"\xff\xfe\x00"].reason == "undecodable"
    assert len(state.letters()) == expected
    assert "x-big" in bytes(letters[b"oops"].headers).decode()
    wires.empty()
    assert receiver.stop() == 0
    assert "Traceback" not in receiver.text()


def test_a_letter_is_replayed_through_its_source(
    start_receiver: Callable[..., Receiver], start_worker: Callable[..., Worker], wires: Wires, state: State
) -> None:
    """Unreadable today: after the sender's queue, or the reader, was put right, the same bytes become a job."""
    from celery import Celery

    from harness import Harness
    from harness.replay import replay_many
    from harness.store.store import Store

    start_receiver("strict")
    raw = Raw(b'{"id": {"no": "text"}, "order": {"lines": [{"item": "tea"}]}}')
    wires.send(raw, "strict")
    until(state.letters, 60)
    here = Harness(
        Celery("op", broker="memory://", set_as_current=False),
        service="tests",
        database_url=str(state.engine.url.render_as_string(False)),
    )
    [letter] = state.letters()

    def again() -> None:
        assert replay_many(here.database, Store.of("core"), "tests", [letter.id], "op", here.events)["replayed"] == 1

    again()
    start_worker()  # for its relay
    until(lambda: state.letters()[0].status == "pending_review" and state.letters()[0].replays == 1, 60)
    assert [event["event"] for event in state.letters()[0].lineage] == ["replayed", "failed_again"]
    # What an operator does who knows the id: the body is put right in the letter.
    state.sql("UPDATE core.dead_letters SET body = :b", b=b'{"id": "o-1", "order": {"lines": [{"item": "tea"}]}}')
    again()
    until(lambda: state.letters()[0].resolved_at is not None, 60)
    until(lambda: state.inbox("o-1"), 60)
    assert state.fence(letter.job_id) == "done"
    here.close()


def cloud(event_id: str, source: str = "/shop", **more: Any) -> bytes:
    return json.dumps({"specversion": "1.0", "id": event_id, "source": source, "type": "sold", **more}).encode()


def test_formats_and_bindings(start_receiver: Callable[..., Receiver], wires: Wires, state: State) -> None:
    """CloudEvents in both modes, a function, an exchange with several keys, and webhooks."""
    start_receiver()
    structured = "application/cloudevents+json; charset=utf-8"
    wires.send(Raw(cloud("1", data={"n": 1}, partitionkey="k7"), content_type=structured), "events")
    wires.send(Raw(cloud("1", "/other", data={"n": 1}), content_type=structured), "events")
    attributes = {"id": "2", "source": "/shop", "specversion": "1.0", "type": "sold", "partitionkey": "k8"}
    for number, prefix in enumerate(("cloudEvents:", "cloudEvents_", "ce-", "CE_")):
        headers = {f"{prefix}{name}": value for name, value in attributes.items()}
        wires.send(Raw(b'{"n": 2}', headers | {f"{prefix}id": f"b{number}"}), "events")
    wires.send(Raw(b"o-5 tea 4", content_type="text/plain"), "own")
    for key in ("order.eu.paid", "order.us.new", "order.us.old", "other"):
        from kombu import Exchange, Producer

        Producer(wires.channel, exchange=Exchange("shop", type="topic", durable=True)).publish(
            json.dumps({"item": key}).encode(),
            routing_key=key,
            message_id=key,
            content_type=JSON,
            content_encoding="utf-8",
        )
    wanted = {
        "/shop|1",
        "/other|1",
        "/shop|b0",
        "/shop|b1",
        "/shop|b2",
        "/shop|b3",
        "o-5",
        "order.eu.paid",
        "order.us.new",
    }
    until(lambda: set(ids(state)) >= wanted, 60)
    assert set(ids(state)) == wanted
    keys = {row.job_id: row.ordering_key for row in state.sql("SELECT job_id, ordering_key FROM core.inbox")}
    assert (keys["/shop|1"], keys["/shop|b3"], keys["/other|1"]) == ("k7", "k8", None)
    row = state.inbox("/shop|b0")
    assert json.loads(bytes(row.body))[1] == {"kind": "sold", "data": {"n": 2}}
    assert state.letters() == []


def test_conflict_through_a_source(start_receiver: Callable[..., Receiver], wires: Wires, state: State) -> None:
    receiver = start_receiver()
    wires.send(message("x", "tea"))
    wires.send(message("x", "coffee"))
    wires.send(message("x", "tea", count=1))  # the default, written out
    wires.send(message("x", "coffee"))
    until(lambda: receiver.says("received_before") == 2, 60)
    [letter] = state.letters()
    assert letter.reason == "conflict"
    assert letter.job_id.startswith("x#")
    assert json.loads(bytes(letter.body))[1] == {"item": "coffee"}
    assert (state.fence(letter.job_id), state.fence("x")) == ("dead", None)
    assert json.loads(bytes(state.inbox("x").body))[1] == {"item": "tea"}
    assert receiver.says("dead job_id=x#") == 1
    assert receiver.says("reason=conflict") == 1


def test_several_sources_in_several_processes(
    start_receiver: Callable[..., Receiver], wires: Wires, state: State
) -> None:
    receivers = [start_receiver("orders", "own"), start_receiver("orders"), start_receiver()]
    names = [uuid4().hex for _ in range(300)]
    for number, name in enumerate(names):
        wires.send(message(name))
        if number % 3 == 0:
            wires.send(message(name))
            wires.send(Raw(f"own-{name} tea 1".encode()), "own")
    until(lambda: len(ids(state)) >= 400, 60)
    wires.empty()
    assert len(ids(state)) == len(set(ids(state))) == 400
    assert state.letters() == []
    assert sum(receiver.says("received job_id=") for receiver in receivers) == 400
    assert [receiver.stop() for receiver in receivers] == [0, 0, 0]


def test_wrong_names_end_at_once(broker_url: str, database: str, tmp_path: Path) -> None:
    receiver = Receiver(broker_url, database, tmp_path / "log", "order")
    assert receiver.launch().wait(60) == 1
    assert "The app has no source 'order'. Its sources: orders, strict" in receiver.text()
