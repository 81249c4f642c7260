"""Messages that no worker can run: each leaves its evidence, and the worker goes on."""

import json
import pickle
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import uuid4

import psycopg2
import pytest
from celery import Celery

from harness import Harness
from harness.replay import replay_many
from harness.store import codec
from harness.store.store import Store
from tests.conftest import BROKERS
from tests.services import Servers
from tests.worker.running import ForkedWorker, State, Worker, client, until
from tests.worker.wires import JSON, Raw, Wires, body

UNDECODABLE, INVALID = "undecodable", "invalid_payload"
#: What a job named in its headers can still have wrong with it, and the reason of its letter.
LETTERS: dict[str, tuple[Raw, str]] = {
    "body null": (Raw(b"null"), UNDECODABLE),
    "body a number": (Raw(b"42"), UNDECODABLE),
    "body true": (Raw(b"true"), UNDECODABLE),
    "body a text": (Raw(b'"args"'), UNDECODABLE),
    "body an empty list": (Raw(b"[]"), UNDECODABLE),
    "body an empty object": (Raw(b"{}"), UNDECODABLE),
    "two items": (Raw(b"[[], {}]"), UNDECODABLE),
    "four items": (Raw(b"[[], {}, {}, {}]"), UNDECODABLE),
    "not JSON": (Raw(b"<order>17</order>"), UNDECODABLE),
    "JSON cut off": (Raw(body()[:-3]), UNDECODABLE),
    "empty body": (Raw(b""), UNDECODABLE),
    "pickle": (
        Raw(pickle.dumps([[], {}, {}]), content_type="application/x-python-serialize", content_encoding="binary"),
        UNDECODABLE,
    ),
    "yaml": (Raw(b"- []\n- {}\n- {}\n", content_type="application/x-yaml"), UNDECODABLE),
    "kwargs a list": (Raw(b"[[], [1, 2], {}]"), INVALID),
    "kwargs an empty list": (Raw(b"[[], [], {}]"), INVALID),
    "kwargs pairs": (Raw(b'[[], [["points", 3]], {}]'), INVALID),
    "kwargs null": (Raw(b"[[], null, {}]"), INVALID),
    "args a text": (Raw(b'["abc", {}, {}]'), INVALID),
    "args an object": (Raw(b'[{"points": 3}, {}, {}]'), INVALID),
    "embed a text": (Raw(b'[[], {}, "abc"]'), UNDECODABLE),
    "callbacks a text": (Raw(b'[[], {}, {"callbacks": "credit"}]'), UNDECODABLE),
    "a callback that is a text": (Raw(b'[[], {}, {"callbacks": ["credit"]}]'), UNDECODABLE),
    "a callback without a task": (Raw(b'[[], {}, {"callbacks": [{"args": [], "options": {}}]}]'), UNDECODABLE),
    "options a list": (Raw(b'[[], {}, {"chain": [{"task": "credit", "options": ["q"]}]}]'), UNDECODABLE),
    "errbacks a table": (Raw(b'[[], {}, {"errbacks": {"task": "credit"}}]'), UNDECODABLE),
    "chord a list": (Raw(b'[[], {}, {"chord": [{"task": "credit"}]}]'), UNDECODABLE),
    "timelimit a text": (Raw(body(), {"timelimit": "soon"}), UNDECODABLE),
    "timelimit of texts": (Raw(body(), {"timelimit": ["1", "2"]}), UNDECODABLE),
    "timelimit negative": (Raw(body(), {"timelimit": [-1, None]}), UNDECODABLE),
    "timelimit too short": (Raw(body(), {"timelimit": [1]}), UNDECODABLE),
    "eta unreadable": (Raw(body(), {"eta": "the day after tomorrow"}), UNDECODABLE),
    "eta a list": (Raw(body(), {"eta": [2026, 1, 1]}), UNDECODABLE),
    "expires unreadable": (Raw(body(), {"expires": "never"}), UNDECODABLE),
    "stamps a text": (Raw(body(), {"stamps": "x", "stamped_headers": "y"}), UNDECODABLE),
}
ODD_HEADERS: dict[str, Any] = {
    "root_id": [1],
    "parent_id": {"a": 1},
    "group": ["g"],
    "retries": "many",
    "argsrepr": [1],
    "kwargsrepr": 7,
    "origin": {"x": 1},
    "shadow": [1],
    "ignore_result": "maybe",
    "lang": 5,
    "harness_generation": "x",
    "harness_dispatch": [2],
    "harness_sent_at": {"when": 1},
    "harness_correlation_id": ["c"],
    "replaced_task_nesting": "deep",
    "stamps": {"a": ["b"]},
    "redelivered": "perhaps",
}


@dataclass
class Place:
    """One worker for all the tests of this module: none of these messages may end it."""

    worker: Worker
    wires: Wires
    sender: Celery
    state: State
    here: Harness

    def replay(self, *letters: Any) -> None:
        """Replay from this process."""
        ids = [letter.id for letter in letters]
        counts = replay_many(self.here.database, Store.of("core"), "tests", ids, "tester", self.here.events)
        assert counts["replayed"] == len(ids)

    def revoke(self, job_id: str, **how: Any) -> None:
        """Revoke, and wait for the worker's answer."""
        assert self.sender.control.revoke(job_id, reply=True, limit=1, timeout=20, **how)

    def goes_on(self) -> None:
        """The same worker runs the next jobs, on each of its slots, and nothing is left with the broker."""
        markers = [uuid4().hex for _ in range(4)]
        for marker in markers:
            self.sender.send_task("credit", task_id=marker)
        for marker in markers:
            until(lambda marker=marker: self.state.fence(marker) == "done", 20, "the next job runs")
        assert self.worker.alive
        assert self.worker.text().count(" ready.") == 1
        self.wires.empty()


@pytest.fixture(scope="module", params=BROKERS)
def place(
    request: pytest.FixtureRequest, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    amqp = request.param == "rabbitmq"
    broker = servers.rabbitmq_url() if amqp else servers.redis_url()
    database = servers.databases().make()
    state, wires, sender = State(database), Wires(broker), client(broker)
    harness = Harness(Celery("here", broker=broker, set_as_current=False), service="tests", database_url=database)
    worker = ForkedWorker(broker, database, tmp_path_factory.mktemp("malformed") / "worker.log").start()
    try:
        yield Place(worker, wires, sender, state, harness)
        assert worker.alive
        worker.stop()
        assert wires.left() == 0, "what was unacknowledged has come back"
    finally:
        worker.stop()
        sender.close()
        harness.close()
        harness.app.close()
        wires.close()
        state.close()
        servers.databases().drop(database)
        if amqp:
            servers.close_rabbitmq_url(broker)


@pytest.fixture
def wires(broker_url: str) -> Iterator[Wires]:
    made = Wires(broker_url)
    yield made
    made.close()


def addressed(name: str, raw: Raw, task: str = "credit") -> Raw:
    return replace(raw, headers={"task": task, "id": f"{name} {uuid4().hex}"} | raw.headers)


def assert_exact(letter: Any, raw: Raw) -> None:
    assert bytes(letter.body) == raw.body
    assert (letter.content_type, letter.content_encoding) == (raw.content_type, raw.content_encoding)
    assert codec.loads(bytes(letter.headers)) == raw.headers


def test_every_malformed_message_leaves_a_letter(place: Place) -> None:
    sent = {name: (addressed(name, raw), reason) for name, (raw, reason) in LETTERS.items()}
    for raw, _ in sent.values():
        place.wires.send(raw)
    letters = {}
    for name, (raw, reason) in sent.items():
        job_id = raw.headers["id"]
        letter = letters[name] = until(lambda job_id=job_id: place.state.letter(job_id), 30, f"letter of {name}")
        assert letter.reason == reason, (name, letter.reason, letter.error_message)
        assert (letter.attempts, letter.task) == (1, "credit"), name
        assert letter.error_message, name
        assert_exact(letter, raw)
        assert place.state.effects(job_id) == 0, name
        assert place.state.inbox(job_id) is None, name
    place.replay(*letters.values())
    for name, (raw, reason) in sent.items():
        job_id = raw.headers["id"]
        if reason == UNDECODABLE and name.startswith(("eta", "expires")):
            # Of these a replay drops what could not be read.
            until(lambda job_id=job_id: place.state.effects(job_id) == 1, 30, f"{name} runs when it is replayed")
            continue
        until(lambda job_id=job_id: place.state.letter(job_id).status == "pending_review", 30, f"{name} comes back")
        assert place.state.letter(job_id).replays == 1
        assert_exact(place.state.letter(job_id), raw)
    place.goes_on()


def test_a_message_without_a_name_is_found_by_its_bytes(place: Place) -> None:
    marks = iter(range(100))

    def unique() -> bytes:
        return body([], {"points": 1, "mark": next(marks)})

    cases: dict[str, Raw] = {
        "no id": Raw(unique(), {"task": "credit"}),
        "id null": Raw(unique(), {"task": "credit", "id": None}),
        "id empty": Raw(unique(), {"task": "credit", "id": ""}),
        "no headers": Raw(unique()),
        "headers of somebody else": Raw(b'{"order": 17}', {"x-source": "shop"}),
        "a list of somebody else": Raw(b'["order", 17]', {"x-source": "shop"}),
        "null of somebody else": Raw(b"null", {"x-source": "other"}),
        "nothing at all": Raw(b""),
    }
    for raw in cases.values():
        place.wires.send(raw)
    for name, raw in cases.items():
        job_id = "sha256:" + sha256(raw.body).hexdigest()
        letter = until(lambda job_id=job_id: place.state.letter(job_id), 30, f"letter of {name}")
        assert letter.reason == UNDECODABLE, name
        assert_exact(letter, raw)
    odd = {
        "id a list": ({"task": "credit", "id": ["a", 1]}, "sha256:" + sha256(b"['a', 1]").hexdigest()),
        "id a number": ({"task": "credit", "id": 4711}, "sha256:" + sha256(b"4711").hexdigest()),
        "task a list": ({"task": ["credit"], "id": "task-a-list"}, "task-a-list"),
        "task an object": ({"task": {"name": "credit"}, "id": "task-an-object"}, "task-an-object"),
        "task null": ({"task": None, "id": "task-null"}, "task-null"),
    }
    for headers, _ in odd.values():
        place.wires.send(Raw(body(), headers))
    for name, (headers, job_id) in odd.items():
        letter = until(lambda job_id=job_id: place.state.letter(job_id), 30, f"letter of {name}")
        assert letter.reason == UNDECODABLE, name
        assert_exact(letter, Raw(body(), headers))
    place.goes_on()


def test_odd_headers_do_no_harm(place: Place) -> None:
    """Headers that decide nothing may be anything: the job runs, or is a letter; the worker stays."""
    sent = {name: addressed(f"odd-{name}", Raw(body(), {name: value})) for name, value in ODD_HEADERS.items()}
    for raw in sent.values():
        place.wires.send(raw)
    for name, raw in sent.items():
        job_id = raw.headers["id"]
        until(lambda job_id=job_id: place.state.settled(job_id), 30, f"{name} settled")
        if place.state.fence(job_id) == "dead":
            letter = place.state.letter(job_id)
            assert letter.reason == UNDECODABLE, (name, letter.reason, letter.error_message)
            assert_exact(letter, raw)
        else:
            assert place.state.effects(job_id) == 1, name
    place.goes_on()


def test_protocol_1(place: Place) -> None:
    def message(name: str, task: str = "credit", **more: Any) -> tuple[str, Raw]:
        job_id = f"{name}-{uuid4().hex}"
        values = {"id": job_id, "task": task, "args": [], "kwargs": {}, "retries": 0, "eta": None, "expires": None}
        return job_id, Raw(json.dumps(values | {"utc": True} | more).encode())

    past, soon = datetime.now(UTC) - timedelta(hours=1), datetime.now(UTC) + timedelta(seconds=4)
    runs, runs_raw = message("runs", kwargs={"points": 2})
    retried, retried_raw = message("retried", "fails_until", kwargs={"good": 3})
    dead, dead_raw = message("dead", "echo", kwargs={"x": "a\u0000b"})
    expired, expired_raw = message("expired", expires=past.isoformat())
    waits, waits_raw = message("waits", eta=soon.isoformat())
    for raw in (runs_raw, runs_raw, retried_raw, dead_raw, expired_raw, waits_raw):
        place.wires.send(raw)
    until(lambda: place.state.inbox(waits), 20, "waits in the inbox")
    for job_id in (runs, retried, dead, expired):
        until(lambda job_id=job_id: place.state.settled(job_id), 30, f"{job_id} settled")
    assert [place.state.effects(job_id) for job_id in (runs, retried, dead, expired)] == [1, 1, 0, 0]
    letters = [place.state.letter(dead), place.state.letter(expired)]
    assert [letter.reason for letter in letters] == ["permanent", "expired"]
    assert_exact(letters[0], dead_raw)
    assert_exact(letters[1], expired_raw)
    place.replay(*letters)
    until(lambda: place.state.effects(expired) == 1, 30, "the expired one runs when it is replayed")
    until(lambda: place.state.letter(dead).status == "pending_review", 30, "the dead one comes back")
    assert_exact(place.state.letter(dead), dead_raw)
    until(lambda: place.state.effects(waits) == 1, 30, "runs when its time has come")
    assert place.state.sql("SELECT now() >= :soon", soon=soon)[0][0]
    place.goes_on()


def test_an_eta_in_the_far_future_waits_in_the_inbox(place: Place) -> None:
    etas = ["9999-12-31T23:59:59+00:00", "9999-12-31T23:59:59.999999-12:00", "9999-01-01T00:00:00"]
    sent = [addressed(f"far{n}", Raw(body(), {"eta": eta})) for n, eta in enumerate(etas)]
    for raw in sent:
        place.wires.send(raw)
    for raw in sent:
        row = until(lambda raw=raw: place.state.inbox(raw.headers["id"]), 20, "waits")
        assert row.available_at.year >= 9990
        assert bytes(row.body) == raw.body
        assert place.state.fence(raw.headers["id"]) == "waiting"
    place.goes_on()
    assert all(place.state.inbox(raw.headers["id"]) for raw in sent)


def test_what_is_no_message_at_all(place: Place) -> None:
    """On a Redis-protocol broker anybody can push anything onto the list of a queue."""
    if place.wires.amqp:
        return  # there the protocol sees to it
    tag = iter(range(1, 100))

    def envelope(**changes: Any) -> bytes:
        where = {"exchange": "", "routing_key": "jobs"}
        properties = {"body_encoding": "base64", "delivery_tag": f"tag{next(tag)}", "delivery_info": where}
        whole: dict[str, Any] = {
            "body": b64encode(body()).decode(),
            "content-type": JSON,
            "content-encoding": "utf-8",
            "headers": {"task": "credit", "id": "enveloped"},
            "properties": properties | changes.pop("properties", {}),
        } | changes
        return json.dumps({key: value for key, value in whole.items() if value is not ...}).encode()

    items = {
        "not JSON": b"<order/>",
        "not UTF-8": b"\xff\xfe\x00",
        "with a byte order mark": b"\xef\xbb\xbf" + envelope(),
        "in UTF-16": envelope().decode().encode("utf-16-le"),
        "empty": b"",
        "a number": b"17",
        "an object of somebody else": b'{"order": 17}',
        "no properties": envelope(properties={}).replace(b'"properties"', b'"none"'),
        "no delivery tag": envelope(properties={"delivery_tag": None}),
        "delivery_info a list": envelope(properties={"delivery_info": []}),
        "headers a list": envelope(headers=["task", "credit"]),
        "headers a text": envelope(headers="task"),
        "a type that nobody knows": envelope(headers={"x": {"__type__": "order", "__value__": 1}}),
        "body no base64": envelope(body="***"),
        "packed nobody knows how": envelope(properties={"body_encoding": "base32"}),
        "body a number": envelope(body=17),
        "no body": envelope(body=...),
        "content type a list": envelope(**{"content-type": ["a"]}),
    }
    for item in items.values():
        place.wires.channel.client.lpush("jobs", item)
    for name, item in items.items():
        job_id = "sha256:" + sha256(item).hexdigest()
        letter = until(lambda job_id=job_id: place.state.letter(job_id), 30, f"letter of {name}")
        assert (letter.reason, bytes(letter.body), letter.queue) == (UNDECODABLE, item, "jobs"), name
    place.goes_on()


def test_properties_that_can_not_be_read(place: Place) -> None:
    """On RabbitMQ: a text that is no UTF-8 once ended every worker that was given the message."""
    if not place.wires.amqp:
        return  # there the envelope is JSON
    sent = {
        "content type": Raw(body([], {"mark": 1}), {"task": "credit", "id": "unreadable"}, content_type=b"\xff\xfe"),
        "content encoding": Raw(body([], {"mark": 2}), {"task": "credit"}, content_encoding=b"\x80"),
        "correlation id": Raw(body([], {"mark": 3}), properties={"correlation_id": b"\xc3"}),
        "the body is empty": Raw(b"", {"x": "unreadable"}, properties={"reply_to": b"\xa0\xa1"}),
    }
    for raw in sent.values():
        place.wires.send(raw)
    for name, raw in sent.items():
        job_id = "sha256:" + sha256(raw.body).hexdigest()
        letter = until(lambda job_id=job_id: place.state.letter(job_id), 30, f"letter of {name}")
        assert (letter.reason, bytes(letter.body)) == (UNDECODABLE, raw.body), name
        if raw.body:
            headers = codec.loads(bytes(letter.headers))
            assert [*headers] == ["harness_raw"], name
            assert bytes.fromhex(headers["harness_raw"]), name
    place.goes_on()


def come_due(state: State, job_id: str) -> None:
    """Not in 5 to 60 s but now."""
    state.sql("UPDATE core.inbox SET available_at = now() WHERE job_id = :id AND leased_until IS NULL", id=job_id)


def test_an_unknown_task_is_tried_again_and_then_dead(place: Place) -> None:
    raw = addressed("unknown", Raw(body([], {"n": 1})), task="nobody.knows")
    job_id = raw.headers["id"]
    place.wires.send(raw)
    row = until(lambda: place.state.inbox(job_id), 20, "waits in the inbox")
    assert (row.attempts, place.state.fence(job_id)) == (1, "waiting")
    wait = place.state.sql(
        "SELECT extract(epoch FROM available_at - now()) FROM core.inbox WHERE job_id = :id", id=job_id
    )
    assert 1 < wait[0][0] <= 10
    place.wires.empty()

    def dead() -> Any:
        come_due(place.state, job_id)
        return place.state.letter(job_id)

    letter = until(dead, 30, "dead letter")
    assert (letter.reason, letter.attempts, letter.task) == ("unknown_task", 5, "nobody.knows")
    assert len(letter.failures) == 5
    assert_exact(letter, raw)
    place.goes_on()


def test_nothing_is_acknowledged_before_it_is_recorded(
    start_worker: Callable[..., Worker], wires: Wires, state: State, database: str
) -> None:
    cases = ["body null", "not JSON", "pickle", "timelimit a text", "kwargs a list"]
    sent = [addressed(name, LETTERS[name][0]) for name in cases]
    sent.append(addressed("expired", Raw(body(), {"expires": "2020-01-01T00:00:00+00:00"})))
    with closing(psycopg2.connect(database)) as blocker:
        blocker.cursor().execute("LOCK TABLE core.dead_letters IN SHARE MODE")
        worker = start_worker(harness_relay="off")
        for raw in sent:
            wires.send(raw)
        blocked = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'core.dead_letters'::regclass"
        until(lambda: state.sql(blocked)[0][0] == 2, 20, "both children are about to record")
        worker.kill()
    until(lambda: wires.left() == len(sent), 20, "every message is still there")
    worker = start_worker()
    for raw in sent:
        letter = until(lambda raw=raw: state.letter(raw.headers["id"]), 30, raw.headers["id"])
        assert_exact(letter, raw)
    wires.empty()


def test_expired(place: Place) -> None:
    now = datetime.now(UTC)
    past = addressed("past", Raw(body(), {"expires": (now - timedelta(hours=1)).isoformat()}))
    # The producer's clock is 5 minutes behind: what it means to expire in a minute has expired for the database.
    behind = addressed("behind", Raw(body(), {"expires": (now - timedelta(minutes=4)).isoformat()}))
    good = addressed("good", Raw(body(), {"expires": (now + timedelta(hours=1)).isoformat()}))
    retried = addressed("retried", Raw(body([], {"good": 3}), {"expires": (now + timedelta(seconds=60)).isoformat()}))
    retried.headers["task"] = "fails_until"
    for raw in (past, behind, good, retried):
        place.wires.send(raw)
    letters = []
    for raw in (past, behind):
        letters.append(until(lambda raw=raw: place.state.letter(raw.headers["id"]), 20, "letter"))
        assert letters[-1].reason == "expired"
        assert_exact(letters[-1], raw)
    until(lambda: place.state.effects(good.headers["id"]) == 1)
    until(lambda: place.state.effects(retried.headers["id"]) == 1)
    place.replay(*letters)
    for raw in (past, behind):
        until(lambda raw=raw: place.state.effects(raw.headers["id"]) == 1, 20, "runs when it is replayed")
        assert place.state.letter(raw.headers["id"]) is None
    place.goes_on()


def test_an_expiry_holds_while_a_job_waits_for_its_eta(place: Place) -> None:
    now = datetime.now(UTC)
    eta, expires = now + timedelta(seconds=3), now + timedelta(seconds=2)
    raw = addressed("both", Raw(body(), {"eta": eta.isoformat(), "expires": expires.isoformat()}))
    place.wires.send(raw)
    until(lambda: place.state.inbox(raw.headers["id"]), 20, "waits")
    assert until(lambda: place.state.letter(raw.headers["id"]), 20, "letter").reason == "expired"
    place.goes_on()


def test_revoked(place: Place) -> None:
    raw = addressed("revoked", Raw(body()))
    job_id = raw.headers["id"]
    place.revoke(job_id)
    place.wires.send(raw)
    letter = until(lambda: place.state.letter(job_id), 20, "letter")
    assert letter.reason == "revoked"
    assert_exact(letter, raw)
    assert place.state.effects(job_id) == 0
    place.replay(letter)
    until(lambda: place.state.effects(job_id) == 1, 20, "a replay is newer than the revoke")
    assert place.state.letter(job_id) is None
    place.goes_on()


def test_revoked_while_it_waits(place: Place) -> None:
    """A job that waits for its next try can be revoked as one that waits with the broker."""
    raw = addressed("waits", Raw(body(), {"eta": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}))
    job_id = raw.headers["id"]
    place.wires.send(raw)
    until(lambda: place.state.inbox(job_id), 20, "waits")
    place.revoke(job_id)
    come_due(place.state, job_id)
    assert until(lambda: place.state.letter(job_id), 20, "letter").reason == "revoked"
    assert place.state.effects(job_id) == 0
    place.goes_on()


def test_terminated_while_it_runs(place: Place) -> None:
    raw = addressed("terminated", Raw(body([], {"pause": 4.0})))
    job_id = raw.headers["id"]
    place.wires.send(raw)
    running = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
    )
    until(lambda: place.state.sql(running)[0][0], 20, "it runs")
    place.revoke(job_id, terminate=True)
    letter = until(lambda: place.state.letter(job_id), 20, "letter")
    assert letter.reason == "revoked"
    assert "terminated" in letter.error_message
    assert_exact(letter, raw)
    assert place.state.effects(job_id) == 0
    place.replay(letter)
    until(lambda: place.state.effects(job_id) == 1, 20, "runs when it is replayed")
    place.goes_on()
