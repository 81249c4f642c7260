"""What the demo runs on: a database, a broker, a worker. What it has started ends with it, whatever happens."""

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine, text

from harness.dev.postgres import Postgres
from harness.dev.process import spawn
from harness.dev.valkey import Valkey
from harness.store.database import with_driver

ROOT = Path(__file__).resolve().parents[2]
OUTCOMES = ("completed", "duplicate", "stale", "deferred", "dead")
_LINE = re.compile(rf"\] ({'|'.join(OUTCOMES)}) job_id=(\S+) ")
_READY = re.compile(r" ready\.$", re.M)


class Late(Exception):
    """Something did not come about in time."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run takes place; `service` is also the name of its queue and of its schema."""

    database: str
    broker: str
    service: str
    folder: Path


@contextmanager
def place(say: Callable[[str], None]) -> Iterator[Place]:
    """The servers that the environment names, else embedded ones; a schema and a queue that nobody else uses."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="harness-demo-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        database, broker = os.environ.get("HARNESS_DATABASE_URL"), os.environ.get("CELERY_BROKER_URL")
        if database is None:
            database = stack.enter_context(Postgres(folder / "postgres", fsync=False)).url
            say("PostgreSQL: an embedded one")
        if broker is None:
            broker = stack.enter_context(Valkey(folder / "valkey", fsync=False)).url
            say("broker: an embedded Valkey")
        service = f"ledger_demo_{secrets.token_hex(4)}"
        stack.enter_context(_schema(database, service))
        yield Place(_in_schema(database, service), broker, service, folder)


def _in_schema(database: str, name: str) -> str:
    """The URL of the database with `name` as the schema of tables whose schema is not named."""
    url = with_driver(database)
    given = url.query.get("options", "")
    options = f"{given if isinstance(given, str) else ' '.join(given)} -csearch_path={name}".strip()
    return url.update_query_dict({"options": options}).render_as_string(hide_password=False)


@contextmanager
def _schema(database: str, name: str) -> Iterator[None]:
    """The tables of a run, those of the ledger and those of the harness, are dropped after it."""
    engine = create_engine(with_driver(database), isolation_level="AUTOCOMMIT", pool_pre_ping=True)
    try:
        with engine.connect() as connection:
            connection.execute(text(f"CREATE SCHEMA {name}"))
        yield
    finally:
        with contextlib.suppress(Exception), engine.connect() as connection:
            connection.execute(text(f"DROP SCHEMA {name} CASCADE"))
        engine.dispose()


def environment(at: Place) -> dict[str, str]:
    """What the app reads to be in `at`."""
    return {
        "HARNESS_DATABASE_URL": at.database,
        "CELERY_BROKER_URL": at.broker,
        "GITHUB_LEDGER_SERVICE": at.service,
        "GITHUB_LEDGER_SCHEMA": at.service,
    }


class Worker:
    """A real worker: two processes and a relay. Its log says what each delivery came to."""

    def __init__(self, at: Place) -> None:
        self.log = at.folder / "worker.log"
        command = [sys.executable, "-m", "celery", "-A", "examples.github_ledger.trouble", "worker"]
        command += ["--concurrency=2", "--loglevel=INFO", f"--hostname={at.service}@%h"]
        command += ["--without-gossip", "--without-mingle"]
        env = os.environ | environment(at) | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
        with self.log.open("wb") as output:
            self._process = spawn(command, folder=ROOT, death_signal=signal.SIGKILL, output=output, env=env)

    def wait_until_ready(self, deadline: float) -> None:
        """Raises Late, with the end of the log."""
        while not _READY.search(self._text()):
            if self._process.poll() is not None:
                raise Late(f"the worker ended with status {self._process.returncode}:\n{self._text()[-2000:]}")
            if time.monotonic() > deadline:
                raise Late(f"the worker did not come up:\n{self._text()[-2000:]}")
            time.sleep(0.05)

    def outcomes(self) -> list[tuple[str, str]]:
        """`(outcome, job_id)` of each delivery so far."""
        return [(found[1], found[2]) for found in _LINE.finditer(self._text())]

    def trouble(self) -> str | None:
        """Why nothing more is to be expected of it, or None."""
        status = self._process.poll()
        return None if status is None else f"the worker ended with status {status}:\n{self._text()[-2000:]}"

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        """Warm shutdown; by force after 10 s."""
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _text(self) -> str:
        return self.log.read_text(errors="replace")
