"""PostgreSQL or the broker goes away, or a connection breaks: nothing is lost, nothing doubled, no try is spent."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from celery import Celery

from tests.services import Postgres, Service
from tests.worker.proxy import Proxy
from tests.worker.queues import messages
from tests.worker.running import ForkedWorker, State, Worker, client, until

AWAY = 20.0
Start = Callable[[str, str], Worker]


@pytest.fixture
def start_on(tmp_path: Path) -> Iterator[Start]:
    """Starts a worker on a broker and a database that the test names."""
    started: list[Worker] = []

    def start(broker: str, database: str) -> Worker:
        started.append(ForkedWorker(broker, database, tmp_path / f"worker{len(started)}.log"))
        return started[-1].start()

    yield start
    for worker in started:
        worker.end()


@pytest.fixture
def own_state(own_database: str) -> Iterator[State]:
    state = State(own_database)
    yield state
    state.close()


def test_postgres_away_under_load(
    start_on: Start, own_postgres: Postgres, own_database: str, own_state: State, broker_url: str, sender: Celery
) -> None:
    worker = start_on(broker_url, own_database)
    sent: list[str] = []
    over = threading.Event()

    def send() -> None:
        while not over.wait(0.05):
            sent.append(uuid4().hex)
            sender.send_task("credit", kwargs={"pause": 0.02}, task_id=sent[-1])

    load = threading.Thread(target=send)
    load.start()
    try:
        until(lambda: own_state.sql("SELECT 1 FROM ledger"), 30, "the first effects")
        # In good order on one broker, by force on the other.
        (own_postgres.kill if broker_url.startswith("redis") else own_postgres.stop)()
        over.wait(AWAY)
        own_postgres.start()
        before = len(sent)
        until(lambda: len(sent) > before + 20, 30, "load after the outage")
    finally:
        over.set()
        load.join()
    until(lambda: own_state.sql("SELECT count(*) FROM ledger")[0][0] >= len(sent), 60, "each job's effect")
    until(lambda: messages(broker_url) == 0, 20, "the queue is drained")
    until(lambda: not own_state.sql("SELECT 1 FROM core.inbox"), 20, "the inbox is empty")
    rows = own_state.sql("SELECT job_id FROM ledger")
    assert sorted(row.job_id for row in rows) == sorted(sent)
    fences = own_state.sql("SELECT job_id, state FROM core.processed_jobs")
    assert {tuple(row) for row in fences} == {(job_id, "done") for job_id in sent}
    assert own_state.letters() == []
    text = worker.text()
    deferred = [line for line in text.splitlines() if " deferred job_id=" in line]
    assert [line for line in deferred if "error_type=Busy" not in line] == [], "no try was spent"
    # Each job once; the two that were held can come again, by the visibility time-out or by the count.
    assert text.count("] received") <= len(sent) + 10
    assert len(text.splitlines()) <= 4 * len(sent) + 200


def test_postgres_away_for_longer_than_the_time_limit(
    start_on: Start, own_postgres: Postgres, own_database: str, own_state: State, broker_url: str, sender: Celery
) -> None:
    """The limit is the job's own: it is not spent on waiting, and the message does not go through the broker again."""
    worker = start_on(broker_url, own_database)
    job_id = uuid4().hex
    own_postgres.kill()
    sender.send_task("credit", task_id=job_id, time_limit=8, soft_time_limit=6)
    until(lambda: worker.text().count("database away, holding the message") > 1, 60, "it was given out again")
    time.sleep(5)
    own_postgres.start()
    until(lambda: own_state.settled(job_id), 60, "the job ends")
    assert (own_state.fence(job_id), own_state.effects(job_id), own_state.letters()) == ("done", 1, [])
    text = worker.text()
    assert "imeLimitExceeded" not in text
    assert " deferred job_id=" not in text
    if broker_url.startswith("amqp"):  # the visibility time-out of these tests is shorter than the outage
        assert text.count("] received") == 1
    until(lambda: messages(broker_url) == 0, 20, "the queue is drained")


def test_postgres_killed_while_a_dead_childs_verdict_is_due(
    start_on: Start, own_postgres: Postgres, own_database: str, own_state: State, broker_url: str, sender: Celery
) -> None:
    worker = start_on(broker_url, own_database)
    job_id = uuid4().hex
    sender.send_task("kills_child", kwargs={"times": 1, "pause": 1.5}, task_id=job_id)
    at_work = "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE 'INSERT INTO ledger%'"
    until(lambda: own_state.sql(at_work), 20, "its last statement is done")
    own_postgres.kill()
    until(lambda: worker.has_logged("exited with 'signal 9 (SIGKILL)'"), 20, "the child died")
    until(lambda: worker.has_logged("database away, holding the message"), 20, "the verdict is held")
    own_postgres.start()
    until(lambda: own_state.settled(job_id), 60, "the job ends")
    assert (own_state.fence(job_id), own_state.effects(job_id)) == ("done", 1)
    assert own_state.letters() == []
    until(lambda: messages(broker_url) == 0, 20, "the queue is drained")


def test_broker_away_while_a_retry_is_due(start_on: Start, own_broker: Service, database: str, state: State) -> None:
    start_on(own_broker.url, database)
    sender = client(own_broker.url)
    job_id, after = uuid4().hex, uuid4().hex
    sender.send_task("later", kwargs={"delay": 2}, task_id=job_id)
    until(lambda: getattr(state.inbox(job_id), "attempts", 0) == 1, 20, "the retry waits")
    own_broker.kill()
    due = "SELECT 1 FROM core.inbox WHERE job_id = :id AND available_at < now()"
    until(lambda: state.sql(due, id=job_id), 20, "the retry is due")
    until(lambda: state.sql(f"{due} AND relay_error IS NOT NULL", id=job_id), 20, "the relay has tried")
    own_broker.start()
    until(lambda: state.settled(job_id), 60, "the retry runs")
    assert (state.fence(job_id), state.effects(job_id)) == ("done", 1)
    sender.send_task("credit", task_id=after)
    until(lambda: state.settled(after), 60, "the next job runs")
    assert state.letters() == []
    sender.close()


def test_broker_lost_during_the_work(start_on: Start, own_broker: Service, database: str, state: State) -> None:
    worker = start_on(own_broker.url, database)
    sender = client(own_broker.url)
    job_id, after = uuid4().hex, uuid4().hex
    sender.send_task("credit", kwargs={"pause": 2.0}, task_id=job_id)
    at_work = "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE '%INTO ledger%'"
    until(lambda: state.sql(at_work), 20, "the job is at work")
    own_broker.kill()
    until(lambda: state.fence(job_id) == "done", 20, "the work ends without the broker")
    until(lambda: worker.has_logged("Connection to broker lost"), 20, "the worker has noticed")
    own_broker.start()
    sender.send_task("credit", task_id=after)
    until(lambda: state.settled(after), 60, "the next job runs")
    assert worker.alive
    assert (state.fence(job_id), state.effects(job_id)) == ("done", 1)
    sender.close()


@pytest.fixture
def proxy(database: str) -> Iterator[Proxy]:
    made = Proxy(database)
    yield made
    made.close()


def test_lost_answer_to_commit(start_on: Start, broker_url: str, sender: Celery, state: State, proxy: Proxy) -> None:
    worker = start_on(broker_url, proxy.url)
    cases = [
        ("credit", {}, "INTO ledger", "done"),
        ("fails_until", {"good": 2}, "INSERT INTO core.inbox", "done"),
        ("permanent", {}, "INSERT INTO core.dead_letters", "dead"),
    ]
    for forward in (True, False):
        for task, kwargs, words, end in cases:
            job_id = uuid4().hex
            cut = proxy.cut(job_id, words, forward=forward)
            sender.send_task(task, kwargs=kwargs, task_id=job_id)
            until(cut.done.is_set, 20, f"{task}: the connection is cut")
            until(lambda job_id=job_id: state.settled(job_id), 30, f"{task} ends")
            done = end == "done"
            assert (state.fence(job_id), state.effects(job_id)) == (end, int(done)), (task, forward)
            letters = state.sql("SELECT attempts FROM core.dead_letters WHERE job_id = :id", id=job_id)
            assert [tuple(row) for row in letters] == ([] if done else [(1,)]), (task, forward)
    until(lambda: messages(broker_url) == 0, 20, "the queue is drained")
    worker.stop()
    assert messages(broker_url) == 0


@pytest.mark.usefixtures("worker")
def test_a_connection_lost_in_the_handler_counts_a_delivery_and_no_try(sender: Celery, state: State) -> None:
    twice, ever = uuid4().hex, uuid4().hex
    sender.send_task("kills_connection", kwargs={"times": 2}, task_id=twice)
    sender.send_task("kills_connection", task_id=ever)
    until(lambda: state.settled(twice) and state.settled(ever), 60, "both end")
    assert [row.note for row in state.sql("SELECT note FROM ledger")] == ["try 1, delivery 3"]
    letter = state.letter(ever)
    assert letter.reason == "crashed"
    assert "5 times" in letter.error_message
    assert len(letter.failures) == 1


@pytest.mark.usefixtures("worker")
def test_a_duplicate_that_waits_too_long_is_put_off_without_a_try(
    sender: Celery, state: State, worker: Worker, broker_url: str
) -> None:
    job_id = uuid4().hex
    started = time.monotonic()
    for _ in range(2):
        sender.send_task("credit", kwargs={"pause": 5}, task_id=job_id)
    row = until(lambda: state.inbox(job_id), 20, "the second copy is put off")
    assert (row.attempts, row.failures) == (0, [])
    assert state.effects(job_id) == 0
    assert time.monotonic() - started >= 3, "not before fence_wait"
    until(lambda: state.fence(job_id) == "done" and state.inbox(job_id) is None, 30, "the row is closed")
    until(lambda: messages(broker_url) == 0, 20, "the queue is drained")
    assert state.effects(job_id) == 1
    assert state.letters() == []
    until(lambda: worker.has_logged(" duplicate job_id="), 20, "then it is a duplicate")
    assert worker.text().count(" completed job_id=") == 1
