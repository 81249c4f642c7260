"""One ordering key, and a job of it whose call of the other side lasts: nothing else of the key runs meanwhile."""

import json
from collections.abc import Callable
from uuid import uuid4

import pytest

from harness.store.order import WAITS_ITS_TURN
from tests.external.operator import operate
from tests.external.service import Service
from tests.worker.running import State, Worker, until

Calls = Callable[[str, str], int]


@pytest.mark.parametrize("older", ["second_thought", "second_call"])
def test_a_replay_waits_for_the_call_of_a_younger_job(
    start: Callable[..., Worker], state: State, service: Service, calls: Calls, older: str
) -> None:
    worker = start(concurrency=3)
    key, first, second = (uuid4().hex for _ in range(3))

    def enqueue(task: str, job_id: str) -> None:
        state.sql(
            "SELECT * FROM core.enqueue('tests', :task, 'jobs', kwargs => CAST(:kwargs AS json), job_id => :id,"
            " ordering_key => :key)",
            task=task, kwargs=json.dumps({"url": service.url}), id=job_id, key=key,
        )  # fmt: skip

    enqueue(older, first)
    letter = until(lambda: state.letter(first), 60, f"it is dead; see {worker.log}")
    with service.held():
        enqueue("charge", second)
        until(lambda: calls("charge", second), 60, f"the younger one is at its call; see {worker.log}")
        operate(worker, "replay", str(letter.id), "--note", "looked at")
        until(
            lambda: state.inbox(first) is None or state.inbox(first).relay_error == WAITS_ITS_TURN,
            60,
            f"the replay stands back, or has run; see {worker.log}",
        )
        assert (state.fence(first), state.fence(second)) == ("waiting", "claimed"), "it has not begun"
        assert (calls(older, first), state.effects(first)) == (0, 0)
    for job_id in (first, second):
        until(lambda job_id=job_id: state.settled(job_id), 60, f"{job_id} ends; see {worker.log}")
    assert [row.job_id for row in state.sql("SELECT job_id FROM ledger ORDER BY id")] == [second, first]
    assert calls("charge", second) == 1
