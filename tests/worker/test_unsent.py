"""Next steps that can never be sent: each is a letter, the others go, and a replay sends what can be sent again."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from celery.app.task import Context
from kombu import Connection, Exchange, Queue

from harness import Harness
from harness.core.message import Message
from harness.core.outcome import Completed
from harness.replay import NoMessage
from harness.replay.replay import replay as replay_letter
from harness.testing import failpoints
from harness.worker import after
from harness.worker.naming import name
from harness.worker.wire import Wire, copy_of
from tests.worker.canvas import Desk, new
from tests.worker.running import State, Worker, until

#: A time that no sender can read, so that Celery makes no message of the step.
NO_TIME = "whenever"
EXCHANGE = "nobody-listens"


@pytest.fixture
def desk(broker_url: str, redis_url: str, state: State, tmp_path: Path) -> Iterator[Desk]:
    made = Desk(broker_url, redis_url, state, tmp_path)
    yield made
    made.close()


@pytest.fixture
def worker(start_worker: Callable[..., Worker], redis_url: str, desk: Desk) -> Worker:
    return start_worker(result_backend=redis_url, concurrency=3, environment={"CANVAS": "1"})


@pytest.fixture
def operator(database: str) -> Iterator[Harness]:
    app = Celery("operator", broker="memory://", set_as_current=False)
    made = Harness(app, service="tests", database_url=database)
    yield made
    made.close()


def letters(desk: Desk, parent: str, count: int) -> list[Any]:
    """The letters of the steps behind a job, when there are so many."""

    def found() -> list[Any]:
        query = "SELECT * FROM core.dead_letters WHERE failures->0->'parent'->>'job_id' = :parent ORDER BY id"
        return desk.state.sql(query, parent=parent)

    until(lambda: len(found()) >= count, 60, f"{count} letters behind {parent}")
    assert len(found()) == count
    return found()


def give_back(operator: Harness, letter: Any) -> None:
    replay_letter(operator.database, operator.store, "tests", letter.id, "operator", operator.events)


def test_each_kind_of_step(desk: Desk, worker: Worker, operator: Harness) -> None:
    a_link_and_its_neighbours(desk, operator)
    a_chain_goes_on_after_the_replay(desk, operator)
    what_has_no_bytes(desk, operator)
    a_member_of_a_group(desk)
    the_body_of_a_chord(desk, operator)
    a_part_that_can_not_be_returned(desk)
    an_errback(desk)
    a_step_that_is_no_job(desk, operator)
    an_id_that_stands_for_another_content(desk)
    a_name_that_looks_like_a_step_outside(desk, operator)
    until(lambda: not desk.state.sql("SELECT 1 FROM core.inbox"), 60, "nothing is sent for ever")


def a_link_and_its_neighbours(desk: Desk, operator: Harness) -> None:
    s, lead = desk.s, new()
    bad = s("step", 5).set(expires=NO_TIME)
    one = s("step", task_id=lead).set(link=[s("step", add=1), bad, s("plain_step")])
    headers = {"harness_correlation_id": lead}
    for _ in range(2):
        one.clone().apply_async(headers=headers)
    [letter] = letters(desk, lead, 1)
    until(lambda: len(desk.of(lead)) >= 3, 60, "its neighbours")
    assert {("step", 1), ("plain_step", 1)} <= set(desk.of(lead))
    assert desk.state.fence(lead) == "done"
    assert (letter.reason, letter.task, letter.consumer, letter.queue) == ("broker", "step", "tests/step", "jobs")
    assert (letter.correlation_id, letter.payload["args"], letter.payload["step"]) == (lead, [1, 5], "link 1")
    assert letter.payload["parent"] == {"job_id": lead, "task": "step", "consumer": "tests/step"}
    assert (letter.error_type, letter.status) == ("ValueError", "pending_review")
    until(lambda: letters(desk, lead, 1)[0].alerted_at, 30, "the project is told")
    audit = desk.state.sql("SELECT * FROM core.audit_log WHERE letter_id = :id", id=letter.id)
    assert [(row.action, row.details["comes_after"]) for row in audit] == [("dead_lettered", lead)]
    give_back(operator, letter)
    until(lambda: desk.state.fence(letter.job_id) == "done", 60, "the replayed step")
    assert [run["got"] for run in desk.runs("step", letter.job_id)] == [1]
    # The producer sends the job once more: all of it is known.
    before = len(desk.runs("step"))
    one.clone().apply_async(headers=headers)
    other = s("step", task_id=new()).apply_async()
    assert other.get(timeout=60) == 1
    until(lambda: len(desk.runs("plain_step")) >= 2, 60, "the plain link of the duplicate")
    assert len(desk.runs("step")) == before + 1
    assert letters(desk, lead, 1)[0].resolved_at


def a_chain_goes_on_after_the_replay(desk: Desk, operator: Harness) -> None:
    s, lead = desk.s, new()
    line = chain(s("step", task_id=lead), s("step").set(expires=NO_TIME), s("step", add=10)).apply_async()
    [letter] = letters(desk, lead, 1)
    until(lambda: desk.app.AsyncResult(line.id).state == "FAILURE", 30, "nobody waits for the end of the chain")
    assert desk.runs("step", line.id) == []
    give_back(operator, letter)
    until(lambda: desk.runs("step", line.id), 60, "the rest of the chain")
    until(lambda: desk.app.AsyncResult(line.id).state == "SUCCESS", 30, "its result")
    assert desk.app.AsyncResult(line.id).get(timeout=5) == 12
    assert letters(desk, lead, 1)[0].resolved_at


def what_has_no_bytes(desk: Desk, operator: Harness) -> None:
    s, lead = desk.s, new()
    odd = s("step", how="unserialisable", task_id=lead).set(link=[s("step"), s("step", 7, si=True)])
    chain(odd, s("plain_step")).apply_async()
    found = {letter.payload["step"]: letter for letter in letters(desk, lead, 2)}
    assert set(found) == {"link 0", "chain"}, "a link that takes no result is sent"
    until(lambda: [run for run in desk.runs("step") if run["got"] == 7], 30, "it ran")
    for letter in found.values():
        assert (letter.reason, bytes(letter.body)) == ("undecodable", b"")
        assert "nothing to replay" in letter.error_message
        assert letter.error_type == "EncodeError"
        assert "object object" in letter.payload["args"][0]
        with pytest.raises(NoMessage, match="by hand"):
            give_back(operator, letter)


def a_member_of_a_group(desk: Desk) -> None:
    s, lead = desk.s, new()
    members = group(s("step", 1), s("step", 2).set(serializer="no such"), s("step", 3))
    s("step", task_id=lead).set(link=[members]).apply_async(headers={"harness_correlation_id": lead})
    [letter] = letters(desk, lead, 1)
    assert letter.payload["args"] == [1, 2]
    until(lambda: len(desk.of(lead)) >= 3, 60, "the other members")
    assert len(desk.of(lead)) == 3


def the_body_of_a_chord(desk: Desk, operator: Harness) -> None:
    s, first, second = desk.s, new(), new()
    body = s("total").set(expires=NO_TIME, link_error=[s("errback")])
    result = chord([s("step", 1, task_id=first), s("step", 2, task_id=second)], body).apply_async()
    desk.fails(result)
    until(lambda: desk.state.letter(result.id), 60, "the body's letter")
    letter = desk.state.letter(result.id)
    assert letter.failures[0]["parent"]["job_id"] in (first, second)
    assert (letter.reason, letter.payload["args"], letter.payload["step"]) == (
        "broker",
        [[2, 3]],
        "the body of the chord",
    )
    until(lambda: [run for run in desk.runs("errback") if run["got"] == result.id], 60, "the body's errback")
    give_back(operator, letter)
    until(lambda: desk.runs("total", result.id), 60, "the body")
    assert [run["got"] for run in desk.runs("total", result.id)] == [[2, 3]]


def a_part_that_can_not_be_returned(desk: Desk) -> None:
    s, odd = desk.s, new()
    result = chord([s("step", how="unserialisable", task_id=odd), s("step", 2)], s("total")).apply_async()
    desk.fails(result)
    [letter] = letters(desk, odd, 1)
    assert (letter.job_id, letter.task, letter.reason) == (result.id, "total", "undecodable")
    assert desk.state.fence(odd) == "done"
    assert desk.runs("total", result.id) == []


def an_errback(desk: Desk) -> None:
    s, dead = desk.s, new()
    bad = s("plain_errback").set(expires=NO_TIME)
    s("step", how="dead", task_id=dead).set(link_error=[bad, s("errback")]).apply_async()
    [letter] = letters(desk, dead, 1)
    assert (letter.task, letter.payload["step"], letter.payload["args"]) == ("plain_errback", "errback 0", [dead])
    until(lambda: [run for run in desk.runs("errback") if run["got"] == dead], 60, "the other errback")
    assert desk.state.letter(dead).reason == "permanent"


def a_step_that_is_no_job(desk: Desk, operator: Harness) -> None:
    s, lead = desk.s, new()
    s("step", task_id=lead).set(link=[s("plain_step", 5).set(expires=NO_TIME)]).apply_async()
    [letter] = letters(desk, lead, 1)
    assert (letter.service, letter.task, letter.consumer) == ("tests", "plain_step", "tests/outside:plain_step")
    give_back(operator, letter)
    until(lambda: desk.runs("plain_step", letter.job_id), 60, "it ran")
    until(lambda: letters(desk, lead, 1)[0].resolved_at, 30, "its letter is closed")
    assert desk.state.inbox(letter.job_id) is None, "nobody would take the row out"
    assert desk.state.fence(letter.job_id) is None
    assert len(desk.runs("plain_step", letter.job_id)) == 1


def an_id_that_stands_for_another_content(desk: Desk) -> None:
    """Done, or waiting in the inbox: the first job is not touched, and neither is lost."""
    s, lead, report = desk.s, new(), new()
    assert s("step", 7, task_id=report).apply_async().get(timeout=60) == 8
    same = s("step", got=7, task_id=report, si=True).set(expires=NO_TIME)
    other = s("step", 8, task_id=report, si=True).set(expires=NO_TIME)
    for _ in range(2):
        s("step", task_id=lead).set(link=[same, other]).apply_async()
    [letter] = letters(desk, lead, 1)
    assert letter.job_id.startswith(f"{report}#")
    assert (letter.reason, letter.payload["args"]) == ("conflict", [8])
    assert [run["got"] for run in desk.runs("step", report)] == [7]

    lead, waiting = new(), new()
    s("step", 7, task_id=waiting).set(countdown=4).apply_async()
    until(lambda: desk.state.inbox(waiting), 60, "it waits")
    s("step", task_id=lead).set(link=[s("step", 8, task_id=waiting, si=True).set(expires=NO_TIME)]).apply_async()
    [letter] = letters(desk, lead, 1)
    assert (letter.reason, letter.payload["args"]) == ("conflict", [8])
    until(lambda: desk.state.fence(waiting) == "done", 60, "it runs")
    assert [run["got"] for run in desk.runs("step", waiting)] == [7]


def a_name_that_looks_like_a_step_outside(desk: Desk, operator: Harness) -> None:
    """A task that nobody knows, called so: its replay ends as a letter again, not as sent and done."""
    odd = new()
    desk.s("outside:plain_step", task_id=odd).apply_async()
    until(lambda: desk.state.inbox(odd), 60, "it waits for a worker that knows it")
    desk.state.sql("UPDATE core.inbox SET attempts = 4, available_at = now() WHERE job_id = :id", id=odd)
    letter = until(lambda: desk.state.letter(odd), 60, "its letter")
    assert letter.reason == "unknown_task"
    give_back(operator, letter)
    until(lambda: (row := desk.state.inbox(odd)) and row.failures, 60, "its copy is looked at, and waits")
    assert desk.state.fence(odd) == "waiting"
    desk.state.sql("DELETE FROM core.inbox WHERE job_id = :id", id=odd)


on_redis = pytest.mark.parametrize("broker_url", [pytest.param("redis", marks=pytest.mark.redis)], indirect=True)


@on_redis
def test_what_a_redis_broker_drops_and_who_dies_over_it(
    start_worker: Callable[..., Worker], broker_url: str, redis_url: str, state: State, tmp_path: Path
) -> None:
    """kombu drops what no queue is bound for. And a process that dies between the letter and the acknowledgement."""
    desk = Desk(broker_url, redis_url, state, tmp_path)
    environment = {"CANVAS": "1", failpoints.VARIABLE: str(desk.points)}
    worker = start_worker(result_backend=redis_url, harness_relay="off", environment=environment)
    s, lead = desk.s, new()
    step_ids = [name({}, "tests/step", lead, "link", position)["options"]["task_id"] for position in range(3)]
    for step_id in step_ids[:2]:
        desk.armed[step_id] = failpoints.arm(desk.points, "before_alert", "kill_process", step_id)
    bad = s("step", 1).set(exchange="no-such-exchange", routing_key="x")
    s("step", task_id=lead).set(link=[bad.clone(), bad.clone(), bad.clone(), s("step", 2)]).apply_async()
    found = letters(desk, lead, 3)
    assert [letter.job_id for letter in found] == step_ids
    assert {(letter.reason, letter.error_type, letter.queue) for letter in found} == {("broker", "NoRoute", "jobs")}
    until(lambda: all(desk.armed[one].fired for one in step_ids[:2]), 60, "both died")
    until(lambda: [run for run in desk.runs("step") if run["got"] == 1], 60, "the last link, by the third delivery")
    until(lambda: desk.app.AsyncResult(lead).state == "FAILURE", 60, "it is told to the end")
    assert worker.alive
    assert len(state.letters()) == 3
    assert state.effects(lead) == 1
    desk.close()


on_rabbitmq = pytest.mark.parametrize(
    "broker_url", [pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)], indirect=True
)


@on_rabbitmq
def test_what_rabbitmq_does_not_take(
    start_worker: Callable[..., Worker], broker_url: str, redis_url: str, state: State, tmp_path: Path
) -> None:
    """An exchange that is not there, one that leads nowhere, a property it has no form for, a queue that is full."""
    desk = Desk(broker_url, redis_url, state, tmp_path)
    with Connection(broker_url) as connection:
        channel = connection.default_channel
        limit = {"x-max-length": 1, "x-overflow": "reject-publish"}
        Queue("full", Exchange(EXCHANGE, "direct"), "full", queue_arguments=limit)(channel).declare()
        connection.Producer().publish(b"", routing_key="full")
    worker = start_worker(
        result_backend=redis_url,
        harness_outage_hold=5.0,
        harness_relay="off",
        environment={"CANVAS": "1"},
    )
    s, lead = desk.s, new()
    bad = {
        "missing": s("step", 1).set(exchange="no-such-exchange", routing_key="x"),
        "nowhere": s("step", 2).set(exchange=EXCHANGE, routing_key="x"),
        "priority": s("step", 3).set(priority=999),
        "full": s("step", 4).set(exchange=EXCHANGE, routing_key="full"),
        "declared otherwise": s("step", 6).set(queue="full"),
    }
    good = s("step", 5)
    s("step", task_id=lead).set(link=[*bad.values(), good]).apply_async()
    found = {letter.payload["args"][1]: letter for letter in letters(desk, lead, 5)}
    assert sorted(found) == [1, 2, 3, 4, 6]
    for letter in found.values():
        assert (letter.reason, bool(letter.body)) == ("broker", True), letter.error_message
    assert "no-such-exchange" in found[1].error_message
    assert "NO_ROUTE" in found[2].error_message
    assert "MessageNacked" in found[4].error_message
    assert "PRECONDITION_FAILED" in found[6].error_message
    assert found[1].queue == found[2].queue == "jobs", "where the relay could send it"
    until(lambda: [run for run in desk.runs("step") if run["got"] == 1], 60, "the last link, after all of them")
    assert not worker.has_logged("could not be sent"), "its message does not come again"
    desk.close()


def test_what_nobody_has_foreseen_leaves_a_letter_too(
    operator: Harness, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: Any, **__: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(after, "succeed", breaks)
    lead = new()
    message = Message(b"[]", "application/json", "utf-8", {"id": lead, "task": "step"}, {}, "jobs")
    copy = copy_of(Wire(message, redelivered=False, worker="w"), "tests")
    for _ in range(2):
        step = {"task": "step", "args": [], "kwargs": {}, "options": {}}
        after.After(operator, None, copy, Context(id=lead, callbacks=[step])).follow(Completed(1))
    [letter] = state.letters()
    assert letter.payload["kwargs"]["callbacks"][0]["task"] == "step"
    assert (letter.reason, letter.payload["parent"]["job_id"]) == ("undecodable", lead)
    after.After(operator, None, copy, Context(id=lead)).follow(Completed(1))
    assert len(state.letters()) == 1, "nothing came after it"


def test_a_step_that_needs_a_result_which_nobody_kept(
    broker_url: str, redis_url: str, state: State, tmp_path: Path, start_worker: Callable[..., Worker], sender: Celery
) -> None:
    """The job ran from a message that nothing came after, and without a result backend; a copy brings the steps."""
    start_worker()
    lead, linked, free, rest = (new() for _ in range(4))
    sender.send_task("credit", task_id=lead)
    until(lambda: state.settled(lead), 60)
    link = sender.signature("credit", task_id=linked)
    unneeding = sender.signature("credit", task_id=free, immutable=True)
    then = chain(sender.signature("credit", task_id=rest), sender.signature("credit", task_id=new()))
    for _ in range(3):
        sender.send_task("credit", task_id=lead, link=[link, unneeding], chain=[*reversed(then.tasks)])
    until(lambda: state.settled(free), 60, "what needs no result is sent")
    for step in (linked, rest):
        until(lambda step=step: state.letter(step), 60, "the letter of the step")
        letter = state.letter(step)
        assert (letter.reason, letter.error_type) == ("undecodable", "ResultNotKept")
        assert "no result backend" in letter.error_message
        assert state.effects(step) == 0
    assert (state.effects(lead), state.effects(free)) == (1, 1)
    assert len(state.letters()) == 2
