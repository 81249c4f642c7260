"""compose.yaml on real servers: its services' own commands, as plain processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import psutil
import psycopg2
import pytest

from harness.store.migrate import current
from harness.store.revisions import newest
from tests import rabbitmq
from tests.deploy.composed import COMPOSE, SERVICES, Stack
from tests.services import Databases, Servers, run_sql
from tests.worker.running import ROOT, until

ACCOUNT = "octocat/hello-world"
#: Seconds for what is over in ten on a machine that does nothing else.
SLOW = 240


def settings_of(command: list[str]) -> dict[str, str]:
    """PostgreSQL's settings in its command line."""
    return dict(word.split("=", 1) for word in command if "=" in word)


@pytest.fixture
def stack(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """On servers of its own, with compose's settings: one that a server does not know keeps it from starting."""
    [content] = [config["content"] for config in COMPOSE["configs"].values()]
    monkeypatch.setattr(rabbitmq, "_CONFIG", rabbitmq._CONFIG + content)
    broker = servers.own_rabbitmq()
    postgres = servers.own_postgres(**settings_of(SERVICES["postgres"]["command"]))
    subprocess.run([ROOT / "deploy" / "make-env", tmp_path / "secrets"], check=True, capture_output=True)
    made = Stack(tmp_path, tmp_path / "secrets", Databases(postgres.url).make_empty(), broker.url)
    yield made
    made.close()
    servers.discard(postgres)
    servers.discard(broker)


def send(stack: Stack, *job_ids: str) -> None:
    """As the webhook's endpoint does, in a process with the app's own environment."""
    payload = {"action": "opened", "repository": {"full_name": ACCOUNT}, "sender": {"login": "ann"}}
    code = "from examples.github_ledger.app import receive\n"
    code += "".join(f"receive({job_id!r}, 'issues', {payload!r})\n" for job_id in job_ids)
    subprocess.run([sys.executable, "-c", code], cwd=stack.image, env=stack.environment("worker"), check=True)


def entries(stack: Stack) -> dict[Any, Any]:
    return dict(run_sql(stack.database, "SELECT delivery_id, count(*) FROM entries GROUP BY 1"))  # type: ignore[arg-type]


def catches_sigterm(pid: int) -> bool:
    """Has it a handler? The kernel keeps what has none from a process 1, which would stay until SIGKILL."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = re.search(r"^SigCgt:\s+(\w+)", status, re.MULTILINE)
    assert caught
    return bool(int(caught[1], 16) & 1 << signal.SIGTERM - 1)


@pytest.mark.rabbitmq
def test_the_services_work_together(stack: Stack) -> None:
    for name in ("migrate", "ledger"):
        done = stack.run(name)
        assert done.returncode == 0, done.stderr
    assert current(stack.database) == newest()
    programs = ("worker", "relay", "beat", "flower")
    for name in programs:
        stack.start(name)
    until(lambda: " ready." in stack.text("worker"), SLOW, stack.text("worker"))
    until(lambda: "relaying the jobs" in stack.text("relay"), SLOW)
    until(lambda: "beat: Starting" in stack.text("beat"), SLOW)
    assert [name for name in programs if stack.running[name].poll() is not None] == []
    until(lambda: stack.healthy("flower"), SLOW, stack.text("flower"))
    assert stack.healthy("worker")

    send(stack, "one", "one")
    until(lambda: entries(stack) == {"one": 1}, SLOW)
    until(lambda: "duplicate" in stack.text("worker"), SLOW, "the second message is a duplicate")

    # What waits is sent by the relay's own service: the worker has the two processes of its pool and no relay.
    assert len(psutil.Process(stack.running["worker"].pid).children()) == 2
    letter_of_an_unknown_account(stack)

    flower = urllib.request.Request(f"http://127.0.0.1:{stack.port}/api/tasks")
    login = stack.environment("flower")["FLOWER_BASIC_AUTH"]
    flower.add_header("Authorization", "Basic " + b64encode(login.encode()).decode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(flower, timeout=20) as answer:
        assert b"github_ledger.book_activity" in answer.read()
    with pytest.raises(HTTPError, match="401"):
        opener.open(f"http://127.0.0.1:{stack.port}/api/tasks", timeout=20)

    # Sizing, as docs/howto/deploy.md says it: one connection for each process of the pool, two for the relay.
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    connections = run_sql(stack.database, others)
    assert connections[0][0] <= 2 + 2  # type: ignore[operator]
    assert list((stack.folder / "beat").glob("schedule*")), "beat keeps its schedule in the volume"
    a_job_in_hand_is_finished(stack)
    assert not stack.healthy("worker")
    for name in ("beat", "relay", "flower"):
        assert catches_sigterm(stack.running[name].pid), name
        assert stack.stop(name) == 0, (name, stack.text(name)[-1000:])
    assert not stack.healthy("flower")


def letter_of_an_unknown_account(stack: Stack) -> None:
    """A dead letter, the account opened by the one-shot service, a replay through the relay's own process."""
    run_sql(stack.database, "DELETE FROM entries; DELETE FROM accounts")
    send(stack, "two")
    until(lambda: run_sql(stack.database, "SELECT 1 FROM core.dead_letters"), SLOW, "a dead letter")
    assert stack.run("ledger").returncode == 0
    celery = str(Path(sys.executable).with_name("celery"))
    command = [celery, "-A", "examples.github_ledger.app", "harness", "dead-letters", "replay", "1"]
    environment = stack.environment("worker")
    subprocess.run(command, cwd=stack.image, env=environment, check=True, capture_output=True)
    until(lambda: entries(stack) == {"two": 1}, SLOW, "replayed by the relay")


def a_job_in_hand_is_finished(stack: Stack) -> None:
    """SIGTERM to the worker while its job waits for a lock: the job ends, then the worker does."""
    worker = stack.running["worker"]
    with closing(psycopg2.connect(stack.database)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM accounts FOR UPDATE")
        send(stack, "three")
        blocked = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        until(lambda: run_sql(stack.database, blocked), SLOW, "the job is at work")
        assert catches_sigterm(worker.pid)
        worker.send_signal(signal.SIGTERM)
        until(lambda: "Warm shutdown" in stack.text("worker"), SLOW)
        assert worker.poll() is None
        connection.rollback()
    assert worker.wait(SLOW) == 0, stack.text("worker")[-1000:]
    assert entries(stack) == {"two": 1, "three": 1}
    assert run_sql(stack.database, "SELECT job_id, state FROM core.processed_jobs WHERE job_id = 'three'") == [
        ("three", "done")
    ]


def test_make_env_overwrites_nothing(tmp_path: Path) -> None:
    script = [ROOT / "deploy" / "make-env", tmp_path / "secrets"]
    subprocess.run(script, check=True, capture_output=True)
    files = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert set(files) == {"app.env", "flower.env", "postgres.env", "rabbitmq.env"}
    assert {os.stat(tmp_path / "secrets" / name).st_mode & 0o077 for name in files} == {0}
    again = subprocess.run(script, capture_output=True, text=True)
    assert again.returncode == 1
    assert "is there already" in again.stderr
    assert {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()} == files
    password = re.search(r"POSTGRES_PASSWORD=(\w{36})", files["postgres.env"])
    assert password
    assert f"ledger:{password[1]}@postgres" in files["app.env"]
