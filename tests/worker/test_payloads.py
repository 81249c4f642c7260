"""Awkward payloads: the evidence is what was sent, byte for byte, and so is what a replay sends."""

import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import msgpack
import pytest
from celery import Celery

from harness import Harness
from harness.core.message import Message
from harness.replay import replay_many
from harness.store.inbox import Arrival
from harness.store.store import Store
from harness.worker.relaying import relay_of
from tests.worker.running import State, Worker, until
from tests.worker.wires import JSON, Raw, Wires, body

EMBED = b', {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'


def kwargs(text: bytes) -> bytes:
    """A body whose keyword arguments are this JSON text, to the byte."""
    return b"[[], " + text + EMBED


def nested(depth: int) -> bytes:
    return kwargs(b'{"x": ' + b"[" * depth + b"]" * depth + b"}")


PERMANENT, UNDECODABLE, INVALID = "permanent", "undecodable", "invalid_payload"
PLAIN = [[], {"x": "plain"}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
CASES: dict[str, tuple[Raw, str]] = {
    "plain": (Raw(kwargs(b'{"x": 1}')), PERMANENT),
    "nul": (Raw(kwargs(rb'{"x": "a\u0000b", "\u0000": 1}')), INVALID),
    "nul in a value": (Raw(kwargs(rb'{"x": "a\u0000b"}')), PERMANENT),
    "raw NUL byte": (Raw(kwargs(b'{"x": "a\x00b"}')), UNDECODABLE),
    "lone surrogates": (Raw(kwargs(rb'{"x": "\ud800 \udfff", "y": ["\udc80"]}')), PERMANENT),
    "NaN and infinities": (Raw(kwargs(b'{"x": NaN, "y": Infinity, "z": [-Infinity, 1e999]}')), PERMANENT),
    "big integers": (Raw(kwargs(b'{"x": 18446744073709551616, "y": ' + b"9" * 400 + b"}")), PERMANENT),
    "too big an integer": (Raw(kwargs(b'{"x": ' + b"9" * 5000 + b"}")), UNDECODABLE),
    "duplicate keys": (Raw(kwargs(b'{"x": 1, "x": 2, "x": {"y": 1, "y": 2}}')), PERMANENT),
    "numbers as they were written": (Raw(kwargs(b'{"x": 1.0, "y": 1e2, "z": 0.10, "w": -0}')), PERMANENT),
    "spaces and escapes": (Raw(kwargs(b'{ "x" :\t"\\u00e9\\/" ,\r\n"y":[ ] }')), PERMANENT),
    "UTF-8": (Raw(kwargs('{"x": "žluťoučký 🐎"}'.encode())), PERMANENT),
    "not UTF-8": (Raw(kwargs(b'{"x": "\xff\xfe\xe9"}')), UNDECODABLE),
    "latin 1, as it says": (Raw(kwargs(b'{"x": "\xe9"}'), content_encoding="iso-8859-1"), PERMANENT),
    "an encoding that nobody knows": (Raw(kwargs(b'{"x": 1}'), content_encoding="klingon"), PERMANENT),
    "a byte order mark": (Raw(b"\xef\xbb\xbf" + kwargs(b'{"x": 1}')), UNDECODABLE),
    "5 MB": (Raw(kwargs(b'{"x": "' + b"0123456789" * 500_000 + b'"}')), PERMANENT),
    "200 deep": (Raw(nested(200)), PERMANENT),
    "100,000 deep": (Raw(nested(100_000)), UNDECODABLE),
    "msgpack": (Raw(msgpack.packb(PLAIN), content_type="application/x-msgpack", content_encoding="binary"), PERMANENT),
    "compressed": (
        Raw(zlib.compress(kwargs(b'{"x": "' + b"a" * 1000 + b'"}')), {"compression": "application/x-gzip"}),
        PERMANENT,
    ),
    "compressed, it says": (Raw(b"no zlib", {"compression": "application/x-gzip"}), UNDECODABLE),
    "compressed by nobody knows what": (Raw(kwargs(b"{}"), {"compression": "application/x-rar"}), UNDECODABLE),
    "no arguments": (Raw(body()), PERMANENT),
    "no body": (Raw(b""), UNDECODABLE),
    "binary": (Raw(bytes(range(256)) * 8, content_type="application/data", content_encoding="binary"), UNDECODABLE),
    "positional": (Raw(body([1, "two", None, {"three": [3]}])), INVALID),
    "big headers": (Raw(body(), {"big": "x" * 60_000, "many": {f"k{n}": n for n in range(500)}}), PERMANENT),
    "bytes in headers": (Raw(body(), {"blob": b"\x00\xff\xfe", "inner": {"blob": b"\x80"}}), PERMANENT),
    "odd headers": (
        Raw(body(), {"none": None, "yes": True, "float": 1.5, "list": [1, "a", None], "ü": "é\u0000", "minus": -1}),
        PERMANENT,
    ),
    "another content type": (Raw(b"<pay/>", content_type="text/xml"), UNDECODABLE),
}


def ready(name: str, raw: Raw) -> tuple[str, Raw]:
    job_id = f"{name} {uuid4().hex}"
    properties = {"correlation_id": f"corr-{job_id}", "priority": 3}
    headers = {"task": "echo", "id": job_id} | raw.headers
    return job_id, Raw(raw.body, headers, raw.content_type, raw.content_encoding, properties)


def exact(letter: Any) -> tuple[Any, ...]:
    from harness.store import codec

    return bytes(letter.body), letter.content_type, letter.content_encoding, codec.loads(bytes(letter.headers))


@pytest.fixture
def wires(broker_url: str) -> Iterator[Wires]:
    made = Wires(broker_url)
    yield made
    made.close()


@pytest.fixture
def here(broker_url: str, database: str) -> Iterator[Harness]:
    """The service's harness in this process, for a replay and its relay."""
    app = Celery("here", broker=broker_url, set_as_current=False)
    harness = Harness(app, service="tests", database_url=database)
    yield harness
    harness.close()
    app.close()


def test_evidence_and_replay_are_what_was_sent(
    start_worker: Callable[..., Worker], wires: Wires, state: State, here: Harness
) -> None:
    worker = start_worker(accept_content=["json", "application/x-msgpack"])
    sent: dict[str, tuple[Raw, str]] = {}
    for name, (raw, reason) in CASES.items():
        job_id, whole = ready(name, raw)
        sent[job_id] = whole, reason
        wires.send(whole)
    for job_id in sent:
        until(lambda job_id=job_id: state.letter(job_id), 60, f"letter of {job_id}")
    wires.empty()
    assert worker.alive
    worker.stop()

    letters = {}
    for job_id, (raw, reason) in sent.items():
        letter = letters[job_id] = state.letter(job_id)
        assert (letter.reason, letter.attempts) == (reason, 1), (job_id, letter.error_message)
        assert exact(letter) == (raw.body, raw.content_type, raw.content_encoding, raw.headers), job_id
        assert letter.correlation_id == raw.properties["correlation_id"], job_id
        assert state.fence(job_id) == "dead", job_id
        assert state.effects(job_id) == 0, job_id

    numbers = [letter.id for letter in letters.values()]
    counts = replay_many(here.database, Store.of("core"), "tests", numbers, "tester", here.events)
    assert counts["replayed"] == len(sent)
    relay = relay_of(here)
    assert relay.step() == len(sent)
    relay.publish.close()
    again = {}
    while (raw := wires.take()) is not None:
        again[raw.headers["id"]] = raw
    assert again.keys() == sent.keys()
    for job_id, (raw, _) in sent.items():
        back = again[job_id]
        assert back.body == raw.body, job_id
        assert (back.content_type, back.content_encoding) == (raw.content_type, raw.content_encoding), job_id
        assert back.own_headers() == raw.headers, job_id
        assert back.properties["correlation_id"] == raw.properties["correlation_id"], job_id
        assert back.properties["priority"] == 3, job_id


@pytest.mark.usefixtures("worker")
def test_a_second_letter_has_the_same_bytes(wires: Wires, state: State, here: Harness) -> None:
    names = ["lone surrogates", "big integers", "not UTF-8", "compressed", "no body", "bytes in headers"]
    sent = dict(ready(name, CASES[name][0]) for name in names)
    for raw in sent.values():
        wires.send(raw)
    first = {job_id: until(lambda job_id=job_id: state.letter(job_id), 30, job_id) for job_id in sent}
    numbers = [letter.id for letter in first.values()]
    replay_many(here.database, Store.of("core"), "tests", numbers, "tester", here.events)

    def back(job_id: str) -> Any:
        letter = state.letter(job_id)
        return letter if letter.status == "pending_review" and letter.replays == 1 and letter.lineage else None

    for job_id, raw in sent.items():
        letter = until(lambda job_id=job_id: back(job_id), 30, f"{job_id} comes back")
        assert letter.id == first[job_id].id
        assert exact(letter) == (raw.body, raw.content_type, raw.content_encoding, raw.headers), job_id
        assert state.inbox(job_id) is None
    wires.empty()


@pytest.mark.rabbitmq
@pytest.mark.parametrize("broker_url", ["rabbitmq"], indirect=True)
def test_a_message_that_cannot_travel_holds_up_no_other(wires: Wires, here: Harness, state: State) -> None:
    """A row from a transactional enqueue or another broker may have a header for which AMQP has no form."""
    wires.send(Raw(b"declares the queue"))
    store = Store.of("core")
    for job_id, header in (("first", 1), ("poison", 2**70), ("last", 2)):
        message = Message(body(), JSON, "utf-8", {"task": "echo", "id": job_id, "x": header}, {}, "jobs")
        with here.database.begin() as session:
            store.inbox.add(session, Arrival("tests", "tests/echo", "echo", job_id, message))
    relay = relay_of(here)
    relay.step()
    relay.publish.close()
    taken = [raw.headers["id"] for _ in range(3) if (raw := wires.take()) and "id" in raw.headers]
    assert taken == ["first", "last"]
    row = state.inbox("poison")
    assert "no form" in row.relay_error
    assert row.leased_until is not None


def test_the_view_of_a_payload_is_readable(
    start_worker: Callable[..., Worker], wires: Wires, state: State, sender: Celery
) -> None:
    start_worker()
    job_id = uuid4().hex
    wires.send(Raw(kwargs(rb'{"x": "a\u0000b", "n": NaN, "y": [1, {"z": 2}]}'), {"task": "echo", "id": job_id}, JSON))
    letter = until(lambda: state.letter(job_id), 30, "letter")
    assert letter.payload["kwargs"]["y"] == [1, {"z": 2}]
    assert json.dumps(letter.payload, allow_nan=False)
