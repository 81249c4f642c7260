"""Real receivers on both brokers: each message once in the inbox, or with its evidence, whatever happens around."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any
from uuid import uuid4

from tests.receive.conftest import Place
from tests.receive.running import Receiver, message
from tests.worker.running import ROOT, until
from tests.worker.wires import JSON, Raw


def test_taken_in_once(place: Place) -> None:
    for name in ("a1", "a2", "a1", "a3", "a1"):
        place.wires.send(message(name))
    until(lambda: place.receiver.says("received_before job_id=a1") == 2, 60)
    until(lambda: place.ids("a") == ["a1", "a2", "a3"], 60)
    assert place.receiver.says("received job_id=a") == 3
    place.wires.empty()


#: What is wrong → the message, its source and the reason of its letter.
GARBAGE: dict[str, tuple[Raw, str, str]] = {
    "no JSON": (Raw(b"<order/>"), "orders", "undecodable"),
    "empty": (Raw(b""), "orders", "undecodable"),
    "binary": (
        Raw(bytes(range(256)), content_type="application/octet-stream", content_encoding="binary"),
        "orders",
        "undecodable",
    ),
    "an encoding that nobody knows": (Raw(b"{ }", content_encoding="klingon"), "orders", "undecodable"),
    "no object": (Raw(b"[1, 2]"), "orders", "invalid_payload"),
    "NUL": (Raw(b"\x00\x00\x00"), "orders", "undecodable"),
    "deep": (Raw(b"[" * 100_000), "orders", "undecodable"),
    "compressed, but not": (Raw(b"plain1", {"compression": "gzip"}), "orders", "undecodable"),
    "compressed by nobody knows what": (Raw(b"plain2", {"compression": "magic"}), "orders", "undecodable"),
    "a tenant with NUL": (Raw(b'{"item": "t1"}', {"x-tenant": "a\x00b"}), "orders", "invalid_payload"),
    "a tenant that is a table": (Raw(b'{"item": "t2"}', {"x-tenant": {"a": 1}}), "orders", "invalid_payload"),
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


def test_garbage_becomes_letters_and_nothing_stops(place: Place) -> None:
    state, wires = place.state, place.wires
    for raw, source, _ in GARBAGE.values():
        wires.send(raw, source)
        wires.send(raw, source)  # the same again is the same
    # Anybody can push anything onto a list: what reads as a message is one, with the digest of its bytes as its id.
    plain = [] if wires.amqp else [b"no envelope", b"[1]", b"\xff\xfe\x00"]
    good = b'{"item": "pushed"}'
    for item in (*plain, good) if plain else ():
        wires.channel.client.lpush("orders", item)
    wires.send(message("good"))
    until(lambda: state.inbox("good"), 60)
    expected = len(GARBAGE) + len(plain)
    until(lambda: len(state.letters()) >= expected, 60)
    letters = {bytes(letter.body): letter for letter in state.letters()}
    for what, (raw, source, reason) in GARBAGE.items():
        letter = letters[raw.body]
        assert (letter.reason, letter.consumer) == (reason, f"tests/receive:{source}"), what
        assert state.fence(letter.job_id) == "dead"
    assert all(letters[item].consumer == "tests/receive:orders" for item in plain)
    assert len(state.letters()) == expected
    assert (state.inbox(f"sha256:{sha256(good).hexdigest()}") is not None) == bool(plain)
    assert "x-big" in bytes(letters[b"oops"].headers).decode()
    wires.empty()
    assert place.receiver.alive
    assert "Traceback" not in place.receiver.text()


def cloud(event_id: str, source: str = "/shop", **more: Any) -> bytes:
    return json.dumps({"specversion": "1.0", "id": event_id, "source": source, "type": "sold", **more}).encode()


def test_formats_and_bindings(place: Place) -> None:
    """CloudEvents in both modes, a function, an exchange with several keys, and webhooks."""
    wires, state = place.wires, place.state
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
    until(lambda: wanted <= {*place.ids("/"), *place.ids("o")}, 60)
    assert {*place.ids("/"), *place.ids("o")} == wanted
    keys = {row.job_id: row.ordering_key for row in state.sql("SELECT job_id, ordering_key FROM core.inbox")}
    assert (keys["/shop|1"], keys["/shop|b3"], keys["/other|1"]) == ("k7", "k8", None)
    row = state.inbox("/shop|b0")
    assert json.loads(bytes(row.body))[1] == {"kind": "sold", "data": {"n": 2}}


def test_conflict_through_a_source(place: Place) -> None:
    wires, state = place.wires, place.state
    wires.send(message("x", "tea"))
    wires.send(message("x", "coffee"))
    wires.send(message("x", "tea", count=1))  # the default, written out
    wires.send(message("x", "coffee"))
    until(lambda: place.receiver.says("received_before job_id=x") == 2, 60)
    [letter] = state.sql("SELECT * FROM core.dead_letters WHERE reason = 'conflict'")
    assert letter.job_id.startswith("x#")
    assert json.loads(bytes(letter.body))[1] == {"item": "coffee"}
    assert letter.payload == {"args": [], "kwargs": {"item": "coffee"}}
    assert (state.fence(letter.job_id), state.fence("x")) == ("dead", None)
    assert json.loads(bytes(state.inbox("x").body))[1] == {"item": "tea"}
    assert place.receiver.says("dead job_id=x#") == 1
    assert place.receiver.says("reason=conflict") == 1


def test_unreadable_with_one_id_and_two_contents(place: Place) -> None:
    for body in (b"<a/>", b"<b/>", b"<a/>"):
        place.wires.send(Raw(body, properties={"message_id": "u1"}))
    sql = "SELECT job_id FROM core.dead_letters WHERE starts_with(job_id, 'u1') ORDER BY id"
    until(lambda: len(place.state.sql(sql)) == 2, 60)
    place.wires.empty()
    first, other = (row.job_id for row in place.state.sql(sql))
    assert (first, other.startswith("u1#")) == ("u1", True)


def test_several_sources_in_several_processes(place: Place) -> None:
    more = [
        Receiver(place.broker, place.database, place.folder / f"{n}.log", *names)
        for n, names in enumerate((["orders", "own"], ["orders"]))
    ]
    for receiver in more:
        receiver.launch()
    for receiver in more:
        until(lambda receiver=receiver: receiver.says("receive: ready"), 60)
    try:
        names = [f"m{uuid4().hex}" for _ in range(300)]
        for number, name in enumerate(names):
            place.wires.send(message(name))
            if number % 3 == 0:
                place.wires.send(message(name))
                place.wires.send(Raw(f"m-own-{name} tea 1".encode()), "own")
        until(lambda: len(place.ids("m")) >= 400, 60)
        place.wires.empty()
        assert len(place.ids("m")) == len(set(place.ids("m"))) == 400
        everybody = (place.receiver, *more)
        until(lambda: sum(receiver.says("received job_id=m") for receiver in everybody) >= 400, 30)
        assert sum(receiver.says("received job_id=m") for receiver in everybody) == 400
        assert [receiver.stop() for receiver in more] == [0, 0]
    finally:
        for receiver in more:
            receiver.kill()


def test_real_webhooks(place: Place) -> None:
    """Fifty deliveries as GitHub sends them, each of them twice."""
    lines = (ROOT / "examples/github_ledger/deliveries.ndjson").read_bytes().splitlines()
    deliveries = [json.loads(line) for line in lines]
    for delivery in deliveries * 2:
        headers = {"x-github-delivery": delivery["id"], "X-GitHub-Event": delivery["event"]}
        place.wires.send(Raw(json.dumps(delivery["payload"]).encode(), headers), "github")
    sql = "SELECT * FROM core.inbox WHERE task = 'webhook'"
    until(lambda: len(place.state.sql(sql)) >= len(deliveries), 60)
    until(lambda: place.receiver.says("source=github state=waiting") >= len(deliveries), 60)
    rows = {row.job_id: row for row in place.state.sql(sql)}
    assert rows.keys() == {delivery["id"] for delivery in deliveries}
    for delivery in deliveries:
        row = rows[delivery["id"]]
        assert json.loads(bytes(row.body))[1] == {"event": delivery["event"], "payload": delivery["payload"]}
        assert row.ordering_key == delivery["payload"]["repository"]["full_name"]


def test_wrong_names_end_at_once(place: Place) -> None:
    receiver = Receiver(place.broker, place.database, place.folder / "wrong.log", "order")
    assert receiver.launch().wait(60) == 1
    assert "The app has no source 'order'. Its sources: orders, strict" in receiver.text()


def test_it_ends_in_good_order(place: Place) -> None:
    """The last one here: the receiver of this module ends, with what it has in hand stored."""
    for number in range(50):
        place.wires.send(message(f"z{number}"))
    assert place.receiver.stop() == 0
    stored = set(place.ids("z"))
    left = place.wires.left()
    assert len(stored) + left == 50
