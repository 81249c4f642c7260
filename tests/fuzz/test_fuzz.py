"""A part of `make fuzz`, always the same one; and the fuzzer's own eyes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import BROKERS
from tests.fuzz import run
from tests.fuzz.account import Books
from tests.fuzz.mutate import Item
from tests.services import Servers
from tests.worker.running import State

SEED, MESSAGES = 20_261, 300


@pytest.fixture(params=BROKERS)
def made(request: pytest.FixtureRequest, servers: Servers, database: str, tmp_path: Path) -> Iterator[run.Run]:
    amqp = request.param == "rabbitmq"
    url = servers.rabbitmq_url() if amqp else servers.redis_url()
    made = run.Run(url, database, servers.redis_url(), tmp_path, print)
    yield made
    made.close()
    if amqp:
        servers.close_rabbitmq_url(url)


def test_each_message_is_accounted_for(made: run.Run) -> None:
    items = run.make(SEED, MESSAGES, made.wires.amqp)
    try:
        made.send(items)
        made.ends_well(items)
    except run.Broken as broken:
        saved = run.save(broken.items, str(broken))
        pytest.fail(f"seed {SEED}, repeat: python -m tests.fuzz --replay {saved}\n{broken}")
    print(f"seed {SEED}: {dict(made.ends)}, troubles: {dict(made.troubles())}")
    assert min(made.ends[end] for end in ("done", "letter", "waiting")) > MESSAGES / 50, "messages of every kind"


def test_the_books_see_what_is_missing(database: str) -> None:
    state = State(database)
    try:
        assert Books(state).of(Item(1, b"[[], {}, {}]", {"id": "lost", "task": "credit"})) == ""
        state.sql("INSERT INTO ledger (job_id, task) VALUES ('lost', 'credit'), ('lost', 'credit')")
        books = Books(state)
        assert books.doubled() == ["2 effects of 'lost' by credit"]
        assert books.unfounded() == ["'lost': effect without a fence"]
        state.sql("INSERT INTO core.processed_jobs VALUES ('nothing', 'tests/credit', 'done')")
        assert "'nothing': done without effect" in Books(state).unfounded()
    finally:
        state.close()


def test_the_same_seed_makes_the_same_messages(tmp_path: Path) -> None:
    for amqp in (True, False):
        first, second = run.make(7, 60, amqp), run.make(7, 60, amqp)
        assert repr(first) == repr(second)
        assert repr(run.load(run.save(first, "why"))) == repr(first)
        assert repr(run.make(8, 60, amqp)) != repr(first)
