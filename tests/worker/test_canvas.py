"""Chains, links, groups and chords of jobs and plain tasks: each next step has one effect, whatever dies in between."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from celery import chain, chord, group

from harness.testing import failpoints
from tests.worker.canvas import Desk, new, replay
from tests.worker.running import State, Worker, until

#: Where the step's process dies: behind its commit, before and after each thing that comes after it.
POINTS = ("after_commit", "before_send", "after_send", "before_store", "after_store")


on_one_broker = pytest.mark.parametrize("broker_url", [pytest.param("redis", marks=pytest.mark.redis)], indirect=True)


@pytest.fixture
def desk(broker_url: str, redis_url: str, state: State, tmp_path: Path) -> Iterator[Desk]:
    (tmp_path / "points").mkdir()
    made = Desk(broker_url, redis_url, state, tmp_path / "points")
    yield made
    made.close()


@pytest.fixture
def worker(start_worker: Callable[..., Worker], redis_url: str, desk: Desk) -> Worker:
    return start_worker(
        result_backend=redis_url,
        broker_connection_timeout=1,  # Celery's claim on a chord's body lives a few times as long
        concurrency=3,
        environment={"CANVAS": "1", failpoints.VARIABLE: str(desk.points)},
    )


def test_each_kind_and_each_end(desk: Desk, worker: Worker) -> None:
    success(desk)
    late_copies_of_a_header(desk, worker)
    a_result_that_has_no_form(desk)
    what_the_parent_records(desk)


def test_a_process_dies(desk: Desk, worker: Worker) -> None:
    between_the_commit_and_the_next_step(desk, worker)
    the_sender_of_a_body(desk)
    between_the_letter_and_the_errbacks(desk, worker)


@on_one_broker
def test_replays(desk: Desk, worker: Worker, database: str, tmp_path: Path) -> None:
    dead_in_a_chain(desk, worker, database, tmp_path / "chain")
    dead_in_a_header(desk, database, tmp_path / "header")


def success(desk: Desk) -> None:
    """Each kind, with jobs and plain tasks mixed; the correlation id goes all the way."""
    s, carried = desk.s, {"headers": {"harness_correlation_id": "c-chain"}}
    in_chain = chain(s("step"), s("plain_step"), s("step", add=10)).apply_async(**carried)
    linked = s("step", 1).apply_async(
        link=[s("step", add=5), s("plain_step"), chain(s("step"), s("total", [7], si=True))],
        headers={"harness_correlation_id": "c-link"},
    )
    grouped = group(s("step", 1), s("plain_step", 2), s("step", 3)).apply_async()
    in_chord = chord([s("step", 1), s("plain_step", 2), s("step", 3)], s("total")).apply_async(
        headers={"harness_correlation_id": "c-chord"}
    )
    upgraded = chain(s("step"), group(s("step"), s("plain_step"), s("step", how="retry")), s("total"), s("step"))
    upgraded = upgraded.apply_async(headers={"harness_correlation_id": "c-upgraded"})
    assert in_chain.get(timeout=60) == 12
    assert linked.get(timeout=60) == 2
    assert grouped.get(timeout=60) == [2, 3, 4]
    assert in_chord.get(timeout=60) == 9
    assert upgraded.get(timeout=60) == 7
    assert desk.of("c-chain") == [("step", None), ("plain_step", 1), ("step", 2)]
    until(lambda: len(desk.of("c-link")) == 5, 30, "all links")
    assert sorted(desk.of("c-link"), key=str) == [
        ("plain_step", 2), ("step", 1), ("step", 2), ("step", 2), ("total", [7]),
    ]  # fmt: skip
    assert ("total", [2, 3, 4]) in desk.of("c-chord")
    assert len(desk.of("c-chord")) == 4
    assert [one for one in desk.of("c-upgraded") if one[0] in ("total", "plain_step")] == [
        ("plain_step", 1),
        ("total", [2, 2, 2]),
    ]
    assert len(desk.of("c-upgraded")) == 6, "without the try that failed"


def between_the_commit_and_the_next_step(desk: Desk, worker: Worker) -> None:
    """A child, then the whole worker: with a chain, links and the last part of a chord behind the job."""
    s = desk.s
    cases = [(point, "process") for point in POINTS] + [("after_commit", "worker"), ("after_send", "worker")]
    for point, who in cases:
        first = new()
        header = [s("step", 1, task_id=first), s("step", 1)]
        for one in header:
            one.options.update(link=[s("step", add=100)])
        desk.arm(point, who, first)
        body = s("total")
        result = chain(chord(header, body), s("step")).apply_async(headers={"harness_correlation_id": first})
        desk.fired(point, worker if who == "worker" else None)
        assert result.get(timeout=60) == 5, (point, who)
        ran = desk.of(first)
        until(lambda first=first: len(desk.of(first)) >= 6, 30, "all of it ran")
        ran = sorted(desk.of(first), key=str)
        assert ran == [("step", 1)] * 2 + [("step", 2)] * 2 + [("step", 4), ("total", [2, 2])], (point, who)
        duplicate = desk.app.AsyncResult(first)
        assert duplicate.get(timeout=20) == 2, "the original's result"
    assert desk.state.letters() == []
    until(lambda: not desk.state.sql("SELECT 1 FROM core.inbox"), 60, "rows go when all is sent")


def the_sender_of_a_body(desk: Desk) -> None:
    """All parts are counted and Celery has claimed the body: the next delivery waits for that, then sends it."""
    results = []
    for point in ("before_send", "after_send"):
        gid = new()
        desk.arm(point, "process", gid)
        header = [desk.s("step", 1), desk.s("step", 2)]
        results.append(chord(header, desk.s("total"), task_id=gid).apply_async())
        desk.fired(point)
    for result in results:
        assert result.get(timeout=90) == 5
        assert len(desk.runs("total", result.id)) == 1


def late_copies_of_a_header(desk: Desk, worker: Worker) -> None:
    """They are not counted twice, and the body does not come before the last part."""
    first, slow = new(), new()
    header = [desk.s("step", 1, task_id=first), desk.s("credit", pause=4.0, task_id=slow), desk.s("plain_step", 2)]
    result = chord(header, desk.s("total")).apply_async()
    until(lambda: desk.state.fence(first) == "done", 30, "the first part")
    part = desk.s("step", 1, task_id=first)
    part.options.update(group_id=result.parent.id, chord=desk.s("total", task_id=result.id), group_index=0)
    for _ in range(4):
        part.apply_async()
    assert result.get(timeout=60) == 2 + 1 + 3
    for _ in range(2):
        part.apply_async()
    until(lambda: worker.text().count(f"duplicate job_id={first}") == 6, 30, "six duplicates")
    assert len(desk.runs("total", result.id)) == 1
    assert desk.app.AsyncResult(first).get(timeout=5) == 2


def dead_in_a_chain(desk: Desk, worker: Worker, database: str, switch: Path) -> None:
    s, dead = desk.s, new()
    steps = [s("step"), s("step", how="dead", switch=str(switch), task_id=dead), s("plain_step"), s("step", add=10)]
    line = chain(*steps)
    for errback in ("errback", "plain_errback"):
        line.link_error(s(errback))
    result = line.apply_async(headers={"harness_correlation_id": "c-dead"})
    with pytest.raises(Exception, match="dead until the switch"):
        result.get(timeout=60)
    until(lambda: len(desk.of("c-dead")) == 3, 30, "one effect and two errbacks")
    assert sorted(desk.of("c-dead"), key=str) == [("errback", dead), ("plain_errback", dead), ("step", None)]
    # With what the step before it has returned: other arguments would make another job of it.
    desk.s("step", 1, how="dead", switch=str(switch), task_id=dead).apply_async()
    until(lambda: worker.has_logged(f"stale job_id={dead}"), 30, "a late copy")
    switch.touch()
    replay(database, dead, desk.state)
    until(lambda: desk.app.AsyncResult(result.id).state == "SUCCESS", 60, "the chain goes on")
    assert desk.app.AsyncResult(result.id).get(timeout=5) == 1 + 1 + 1 + 10
    assert len(desk.runs("errback")) == 1
    assert [one for one in desk.of("c-dead") if one[0] == "step"] == [("step", None), ("step", 1), ("step", 3)]


def between_the_letter_and_the_errbacks(desk: Desk, worker: Worker) -> None:
    s = desk.s
    for point, who in [
        ("verdict_after_commit", "process"),
        ("before_send", "process"),
        ("verdict_after_commit", "worker"),
    ]:
        dead = new()
        doomed = s("step", how="dead", task_id=dead)
        doomed.options.update(link_error=[s("errback"), s("errback")])
        body = s("total")
        body.options.update(link_error=[s("errback")])
        desk.arm(point, who, dead)
        result = chord([doomed, s("step")], body).apply_async()
        desk.fired(point, worker if who == "worker" else None)
        desk.fails(result)
        until(lambda dead=dead, result=result: len(errbacks(desk, dead, result.id)) >= 3, 30, "the errbacks")
        assert errbacks(desk, dead, result.id) == sorted([dead, dead, result.id]), (point, who)
        assert desk.runs("total", result.id) == []


def errbacks(desk: Desk, *failed: str) -> list[str]:
    return sorted(run["got"] for run in desk.runs("errback") if run["got"] in failed)


def what_the_parent_records(desk: Desk) -> None:
    """A killed child, arguments that do not fit, a message that came too late."""
    s = desk.s
    ways = {
        "crashed": s("kills_child", task_id=new()),
        "invalid_payload": s("credit", points="many", task_id=new()),
        "expired": s("credit", task_id=new()).set(expires=-5),
        "timed_out": s("sleeps", where="handler", task_id=new()),
    }
    after = {}
    for reason, one in ways.items():
        one.set(link_error=[s("errback")])
        after[reason] = chain(one, s("step")).apply_async().id
    for reason, one in ways.items():
        until(lambda one=one: desk.state.letter(one.id), 60, reason)
        assert desk.state.letter(one.id).reason == reason
        until(lambda one=one: errbacks(desk, one.id), 60, f"the errback of {reason}")
        assert errbacks(desk, one.id) == [one.id], reason
        assert desk.app.AsyncResult(one.id).state == "FAILURE", reason
        assert desk.runs("step", after[reason]) == []


def dead_in_a_header(desk: Desk, database: str, switch: Path) -> None:
    s, dead = desk.s, new()
    body = s("total")
    body.options.update(link_error=[s("errback")])
    header = [s("step", how="dead", switch=str(switch), task_id=dead), s("step", 1), s("plain_step", 2)]
    result = chord(header, body).apply_async()
    desk.fails(result)
    until(lambda: errbacks(desk, result.id), 30, "the body's errback")
    switch.touch()
    replay(database, dead, desk.state)
    until(lambda: desk.state.fence(dead) == "done", 60, "the replay succeeds")
    until(lambda: desk.app.AsyncResult(dead).state == "SUCCESS", 20, "its own result")
    assert desk.runs("total", result.id) == []
    assert desk.app.AsyncResult(result.id).state == "FAILURE"
    assert errbacks(desk, result.id) == [result.id]
    # By hand, from the results that are there.
    parts = [desk.app.AsyncResult(part.id).get(timeout=5) for part in result.parent.results]
    s("total", parts, task_id=result.id).apply_async()
    assert until(lambda: desk.runs("total", result.id), 30, "the body, by hand")[0]["got"] == parts


def a_result_that_has_no_form(desk: Desk) -> None:
    s, odd, odd_in_chain = desk.s, new(), new()
    alone = s("step", how="unserialisable", task_id=odd).apply_async()
    lead = s("step", how="unserialisable", task_id=odd_in_chain)
    lead.set(link_error=[s("errback")])
    line = chain(lead, s("step")).apply_async()
    for result in (alone, line):
        with pytest.raises(Exception, match="serializable"):
            result.get(timeout=60)
    until(lambda: errbacks(desk, odd_in_chain), 30, "its errback")
    for job_id in (odd, odd_in_chain):
        assert (desk.state.fence(job_id), desk.state.effects(job_id)) == ("done", 1)
        assert desk.state.letter(job_id) is None
