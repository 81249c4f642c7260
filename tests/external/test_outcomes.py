"""What becomes of a job with external effects that is left in peace: done, failed, or unknown by its own word."""

from collections.abc import Callable
from uuid import uuid4

from celery import Celery

from tests.external.service import Service
from tests.worker.running import State, Worker, until

#: (task, arguments, how it ends: fence, effects in the ledger, calls, reason of its letter)
ENDS = [
    ("charge", {}, ("done", 1, 1, None)),
    ("notify", {}, ("done", 0, 1, None)),
    ("fails_outside", {"how": "raises"}, ("done", 1, 2, None)),
    ("fails_outside", {"how": "later"}, ("done", 1, 2, None)),
    ("fails_outside", {"how": "permanent"}, ("dead", 0, 1, "permanent")),
    ("fails_outside", {"how": "raises", "good": 99}, ("dead", 0, 5, "exhausted")),
    ("fails_outside", {"how": "unknown"}, ("dead", 0, 1, "outcome_unknown")),
    ("fails_outside", {"how": "mapped"}, ("dead", 0, 1, "outcome_unknown")),
    ("fails_outside", {"how": "connection"}, ("dead", 0, 1, "outcome_unknown")),
    ("fails_outside", {"how": "swallows"}, ("dead", 0, 1, "outcome_unknown")),
    ("soft_outside", {}, ("dead", 0, 1, "outcome_unknown")),
    ("slow", {}, ("dead", 0, 1, "outcome_unknown")),
]


def test_each_end(
    start: Callable[..., Worker],
    sender: Celery,
    state: State,
    service: Service,
    calls: Callable[[str, str], int],
) -> None:
    worker = start(concurrency=4)
    jobs = [(task, uuid4().hex, kwargs, end) for task, kwargs, end in ENDS]
    for task, job_id, kwargs, _ in jobs:
        sender.send_task(task, kwargs={"url": service.url, **kwargs}, task_id=job_id)
    for task, job_id, kwargs, _ in jobs:
        until(lambda job_id=job_id: state.settled(job_id), 60, f"{task} {kwargs} ends; see {worker.log}")
    seen = []
    for task, job_id, kwargs, _ in jobs:
        letter = state.letter(job_id)
        reason = letter.reason if letter else None
        seen.append((task, kwargs, (state.fence(job_id), state.effects(job_id), calls(task, job_id), reason)))
    assert seen == [(task, kwargs, end) for task, _, kwargs, end in jobs]
    # A duplicate of a job that is done, and a copy of one that is unknown, call nobody.
    for task, job_id, kwargs, _ in jobs[:2] + jobs[6:7]:
        sender.send_task(task, kwargs={"url": service.url, **kwargs}, task_id=job_id)
    last = uuid4().hex
    sender.send_task("notify", kwargs={"url": service.url}, task_id=last)
    until(lambda: worker.text().count("duplicate") >= 2 and state.settled(last), 60, "they are settled")
    assert [calls(task, job_id) for task, job_id, _, _ in jobs[:2] + jobs[6:7]] == [1, 1, 1]
    errors = [line for line in worker.text().splitlines() if "Traceback" in line]
    assert errors == []


def test_a_modify_before_its_create_waits(start: Callable[..., Worker], sender: Celery, state: State) -> None:
    worker = start(concurrency=2)
    early, never, first = uuid4().hex, uuid4().hex, uuid4().hex
    sender.send_task("modify", kwargs={"account": "a"}, task_id=early)
    sender.send_task("modify", kwargs={"account": "b"}, task_id=never)
    until(lambda: state.inbox(early) and state.inbox(never), 60, f"both wait; see {worker.log}")
    assert (state.inbox(early).attempts, state.fence(early)) == (0, "waiting")
    sender.send_task("create", kwargs={"account": "a"}, task_id=first)
    for job_id in (early, never):
        until(lambda job_id=job_id: state.settled(job_id), 60, f"{job_id} ends; see {worker.log}")
    assert (state.fence(early), state.effects(early), state.letter(early)) == ("done", 1, None)
    letter = state.letter(never)
    assert (letter.reason, letter.attempts, state.effects(never)) == ("not_ready", 1, 0)
    # Nobody waits for ever: it was tried again and again, which is one line of its letter.
    [failure] = letter.failures
    assert failure["times"] > 3
