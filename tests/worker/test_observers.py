"""Who watches does not decide: result backend, hooks, signals, Sentry, log and Flower's events."""

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery

from tests.worker.observed import BACKEND, HOOKS, SIGNALS
from tests.worker.running import State, Worker, until
from tests.worker.wires import Raw, Wires

#: Task, arguments, effects, state of the fence.
WAYS: list[tuple[str, dict[str, Any], int, str]] = [
    ("credit", {}, 1, "done"),
    ("fails_until", {"good": 2}, 1, "done"),
    ("echo", {}, 0, "dead"),
    ("credit", {"points": "many"}, 0, "dead"),
]


#: What has nothing to do with the broker.
on_one_broker = pytest.mark.parametrize("broker_url", [pytest.param("redis", marks=pytest.mark.redis)], indirect=True)


@pytest.fixture
def wires(broker_url: str) -> Iterator[Wires]:
    made = Wires(broker_url)
    yield made
    made.close()


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OBSERVED", "1")


@pytest.fixture
def sentry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, observed: None) -> Path:
    file = tmp_path / "sentry"
    file.touch()
    monkeypatch.setenv("SENTRY_FILE", str(file))
    return file


def send_each_way(sender: Celery, point: str) -> dict[str, tuple[str, dict[str, Any], int, str]]:
    sent = {f"{point}-{uuid4().hex}": way for way in WAYS}
    for job_id, (task, kwargs, *_) in sent.items():
        sender.send_task(task, kwargs=kwargs, task_id=job_id)
    return sent


def assert_outcomes(state: State, sent: dict[str, tuple[str, dict[str, Any], int, str]]) -> None:
    for job_id, (task, _, effects, fence) in sent.items():
        until(lambda job_id=job_id: state.settled(job_id), 60, f"{task} {job_id} settled")
        assert (state.fence(job_id), state.effects(job_id)) == (fence, effects), (job_id, task)
        letter = state.letter(job_id)
        assert (letter is not None) == (fence == "dead"), (job_id, task)
        if letter is not None:
            assert letter.attempts == 1, (job_id, task)


@pytest.mark.usefixtures("observed")
def test_hooks_signals_and_backend_that_raise(
    start_worker: Callable[..., Worker], sender: Celery, state: State, wires: Wires
) -> None:
    worker = start_worker(result_backend="tests.worker.observed:Failing", task_track_started=True)
    sent = {}
    for point in (*HOOKS, *SIGNALS, *BACKEND):
        sent |= send_each_way(sender, point)
    assert_outcomes(state, sent)
    wires.empty()
    assert worker.alive
    assert worker.has_logged("mark_as_done fails"), "the backend did fail"
    worker.stop()
    assert wires.left() == 0


def events_in(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@on_one_broker
def test_sentry_has_one_event_per_dead_letter(
    start_worker: Callable[..., Worker], sender: Celery, state: State, wires: Wires, sentry: Path
) -> None:
    start_worker()
    ends: dict[str, tuple[str, dict[str, Any]]] = {
        uuid4().hex: way
        for way in [
            ("credit", {}),
            ("fails", {}),
            ("fails", {}),
            ("fails_until", {"good": 4}),
            ("later", {}),
            ("celery_retry", {}),
            ("echo", {}),
            ("leaks", {"secret": "s", "kind": "permanent"}),
            ("credit", {"points": -1}),
            ("raises", {"what": "system_exit"}),
            ("raises", {"what": "ignore"}),
            ("kills_child", {"times": 1}),
            ("kills_child", {}),
            ("sleeps", {"where": "database"}),
            ("soft", {}),
            ("kills_connection", {"times": 1}),
        ]
    }
    for job_id, (task, kwargs) in ends.items():
        sender.send_task(task, kwargs=kwargs, task_id=job_id)
    undecodable = uuid4().hex
    wires.send(Raw(b"[]", {"task": "credit", "id": undecodable}))
    for job_id in (*ends, undecodable):
        until(lambda job_id=job_id: state.settled(job_id), 60, f"{job_id} settled")
    letters = {letter.job_id: letter for letter in state.letters()}
    assert len(letters) == 11
    until(lambda: len(events_in(sentry)) >= len(letters), 10, "the events")
    events = events_in(sentry)
    said = [(event.get("tags"), event.get("logger"), event.get("logentry"), event.get("message")) for event in events]
    assert len(events) == len(letters), said
    by_job = {event["tags"]["job_id"]: event for event in events}
    assert by_job.keys() == letters.keys()
    for job_id, letter in letters.items():
        event = by_job[job_id]
        assert (event["tags"]["task"], event["tags"]["reason"]) == (letter.task, letter.reason)
        assert letter.fingerprint in event["fingerprint"]
        assert event["level"] == "error"
    same = [by_job[job_id]["fingerprint"] for job_id, (task, _) in ends.items() if task == "fails"]
    assert same[0] == same[1], "failures of one kind from one place are one group"
    groups = {tuple(event["fingerprint"]) for event in events}
    assert len(groups) == len(events) - 1


@pytest.mark.usefixtures("observed")
@on_one_broker
def test_sentry_that_hangs_and_a_backend_that_is_away(
    start_worker: Callable[..., Worker],
    sender: Celery,
    state: State,
    wires: Wires,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sentry takes the connection and never answers; nobody listens at the result backend's address."""
    once = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        monkeypatch.setenv("SENTRY_DSN", f"http://key@127.0.0.1:{server.getsockname()[1]}/1")
        worker = start_worker(
            result_backend="redis://127.0.0.1:9/0",
            task_track_started=True,
            redis_socket_connect_timeout=0.5,
            result_backend_transport_options={"retry_policy": once},
        )
        sent = {}
        for number in range(5):
            sent |= send_each_way(sender, f"watched{number}")
        assert_outcomes(state, sent)
        wires.empty()
        assert worker.alive
        server.settimeout(20)
        server.accept()[0].close()  # it was asked
        worker.stop()


@pytest.mark.usefixtures("observed")
@on_one_broker
def test_the_log_has_one_line_per_event_and_no_payload(
    start_worker: Callable[..., Worker], sender: Celery, state: State, wires: Wires
) -> None:
    worker = start_worker()
    secret = f"hunter2{uuid4().hex}"
    jobs: dict[str, tuple[str, dict[str, Any], list[tuple[str, str]]]] = {
        "returns": ("returns", {"secret": secret}, [("completed", "1")]),
        "retried": ("fails_until", {"good": 3}, [("deferred", "1"), ("deferred", "2"), ("completed", "3")]),
        "leaks": ("leaks", {"secret": secret}, [("deferred", "1")]),
        "permanent": ("leaks", {"secret": secret, "kind": "permanent"}, [("dead", "1")]),
        "poison": ("credit", {"points": secret}, [("dead", "1")]),
        "extra": ("credit", {secret: 1}, [("dead", "1")]),
        "echo": ("echo", {"x": {"y": [secret]}}, [("dead", "1")]),
        "eta": ("returns", {"secret": secret}, [("deferred", "0"), ("completed", "1")]),
    }
    ids = {name: f"{name}-{uuid4().hex}" for name in jobs}
    for name, (task, kwargs, _) in jobs.items():
        more: dict[str, Any] = {"countdown": 1} if name == "eta" else {}
        headers = {"harness_correlation_id": f"corr-{name}"}
        sender.send_task(task, kwargs=kwargs, task_id=ids[name], headers=headers, **more)
    malformed = [
        Raw(f'["{secret}"'.encode(), {"task": "credit", "id": "cut-off"}),
        Raw(f'[["{secret}"], "{secret}", {{}}]'.encode(), {"task": "credit", "id": "wrong-shape"}),
        Raw(f'{{"x": "{secret}"}}'.encode(), {"x-source": "other"}),
        Raw(b"[[], {}, {}]", {"task": "credit", "id": "limit", "timelimit": secret}),
        Raw(secret.encode() + b"\xff", {"task": "credit", "id": "bytes"}),
    ]
    for raw in malformed:
        wires.send(raw)
    until(lambda: len(state.letters()) == 4 + len(malformed), 30, "letters")
    for name in ("returns", "retried", "eta"):
        until(lambda name=name: state.fence(ids[name]) == "done", 30, name)
    until(lambda: state.inbox(ids["leaks"]), 20, "waits for its second try")
    again = {"harness_correlation_id": "corr-returns"}
    sender.send_task("returns", kwargs={"secret": secret}, task_id=ids["returns"], headers=again)
    until(lambda: worker.has_logged("duplicate job_id="), 20, "the duplicate's line")
    wires.empty()
    worker.stop()
    text = worker.text()

    assert text.count("received") > len(jobs), "Celery's own lines are there"
    assert not re.search(r"Task returns\S* succeeded", text), "the harness's own line says it"
    assert re.search(rf"completed job_id={ids['returns']} task=returns ", text)
    assert re.search(rf"Task leaks\[{ids['permanent']}\] raised expected: harness\S*Permanent", text)
    leaking = [line for line in text.splitlines() if secret in line]
    assert leaking == []
    assert "no account" not in text
    assert "cannot pay" not in text

    lines = re.findall(r"(completed|duplicate|stale|deferred|dead) (job_id=.*)", text)
    for name, (task, _, expected) in jobs.items():
        own = [(event, fields(rest)) for event, rest in lines if f"job_id={ids[name]} " in f"{rest} "]
        if name == "returns":
            expected = [*expected, ("duplicate", "1")]
        assert [(event, values["attempt"]) for event, values in own] == expected, name
        assert {values["task"] for _, values in own} == {task}
        assert {values["correlation_id"] for _, values in own} == {f"corr-{name}"}
    for event in ("relayed count=", "dead job_id=cut-off"):
        assert event in text


def fields(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=('[^']*'|\S+)", line))


def test_flower_sees_each_outcome(worker: Worker, sender: Celery, state: State, broker_url: str) -> None:
    seen: list[dict[str, Any]] = []
    stop = threading.Event()

    def listen() -> None:
        with Celery("flower", broker=broker_url, set_as_current=False).connection_for_read() as connection:
            receiver = sender.events.Receiver(connection, handlers={"*": seen.append})
            with receiver.consumer_context() as (drained, _, _):
                while not stop.is_set():
                    try:
                        drained.drain_events(timeout=0.2)
                    except TimeoutError:
                        continue

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        until(lambda: seen, 30, "a heartbeat of the worker: the listener hears")
        good, retried, dead, poison = (uuid4().hex for _ in range(4))
        sender.send_task("credit", kwargs={"points": 7}, task_id=good)
        sender.send_task("fails_until", kwargs={"good": 2}, task_id=retried)
        sender.send_task("fails", task_id=dead)
        sender.send_task("credit", kwargs={"points": "many"}, task_id=poison)

        def types(job_id: str) -> list[str]:
            return [e["type"] for e in seen if e.get("uuid") == job_id and e["type"] != "task-started"]

        expected = {
            good: ["task-received", "task-succeeded"],
            retried: ["task-received", "task-retried", "task-received", "task-succeeded"],
            dead: ["task-received", "task-retried"] * 4 + ["task-received", "task-failed"],
            poison: ["task-received", "task-failed"],
        }
        for job_id, kinds in expected.items():
            until(lambda job_id=job_id, kinds=kinds: types(job_id) == kinds, 30, f"{kinds}")
    finally:
        stop.set()
        thread.join(20)
    by = {(e["uuid"], e["type"]): e for e in seen if "uuid" in e}
    assert by[good, "task-succeeded"]["result"] == "7"
    assert by[dead, "task-failed"]["exception"] == "ValueError('try 5 failed')"
    assert "ValueError: try 5 failed" in by[dead, "task-failed"]["traceback"]
    assert by[poison, "task-failed"]["exception"].startswith("harness.core.errors.InvalidPayload(")
    assert "points" in by[poison, "task-failed"]["exception"]
    assert by[retried, "task-retried"]["exception"] == "ValueError('try 1 failed')"
