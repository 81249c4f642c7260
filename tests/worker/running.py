"""A real worker as a process, and what it has left behind in the database."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from celery import Celery
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Engine, make_url

from tests.worker.forked import Forked

ROOT = Path(__file__).parents[2]


def until(condition: Callable[[], Any], seconds: float = 30.0, what: str = "") -> Any:
    """Wait for `condition` to be true; AssertionError with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what or condition}"
        time.sleep(0.05)
    return value


class State:
    """What stands in the database."""

    def __init__(self, url: str) -> None:
        self.engine: Engine = create_engine(
            make_url(url).set(drivername="postgresql+psycopg2"), isolation_level="AUTOCOMMIT", pool_pre_ping=True
        )
        self.sql("CREATE TABLE IF NOT EXISTS ledger (id bigserial PRIMARY KEY, job_id text, task text, note text)")

    def sql(self, statement: str, **parameters: Any) -> list[Any]:
        with self.engine.connect() as connection:
            result = connection.execute(text(statement), parameters)
            return list(result) if result.returns_rows else []

    def effects(self, job_id: str) -> int:
        return int(self.sql("SELECT count(*) FROM ledger WHERE job_id = :id", id=job_id)[0][0])

    def fence(self, job_id: str) -> str | None:
        rows = self.sql("SELECT state FROM core.processed_jobs WHERE job_id = :id", id=job_id)
        return rows[0][0] if rows else None

    def letter(self, job_id: str) -> Any:
        """The open letter of a job, None without one."""
        rows = self.sql("SELECT * FROM core.dead_letters WHERE job_id = :id AND resolved_at IS NULL", id=job_id)
        return rows[0] if rows else None

    def letters(self) -> list[Any]:
        return self.sql("SELECT * FROM core.dead_letters ORDER BY id")

    def inbox(self, job_id: str) -> Any:
        rows = self.sql("SELECT * FROM core.inbox WHERE job_id = :id", id=job_id)
        return rows[0] if rows else None

    def settled(self, job_id: str) -> bool:
        """Done or dead, with nothing left in the inbox."""
        return self.fence(job_id) in ("done", "dead") and self.inbox(job_id) is None

    def close(self) -> None:
        self.engine.dispose()


class Worker:
    """`celery worker` of `tests.worker.app`, with its relay, in a process group of its own."""

    app = "tests.worker.app"
    patience = 120.0

    def __init__(self, broker: str, database: str, log: Path, *, concurrency: int = 2, **settings: Any) -> None:
        self.service = settings.pop("service", "tests")
        self.options = settings.pop("options", [])
        extra = settings.pop("environment", {})
        self.environment = os.environ | {
            "BROKER_URL": broker,
            "HARNESS_DATABASE_URL": database,
            "TEST_SETTINGS": json.dumps(settings),
            "TEST_SERVICE": self.service,
            "PYTHONWARNINGS": "default",
            **extra,
        }
        self.concurrency, self.log = concurrency, log
        self.process: subprocess.Popen[bytes] | Forked | None = None

    def start(self, seconds: float = 0.0) -> "Worker":
        """Start it and wait until it consumes."""
        process = self.launch()
        ready = f"worker ready, see {self.log}"
        patience = max(seconds, self.patience)
        try:
            until(lambda: self.has_logged(" ready.") or process.poll() is not None, patience, ready)
        except AssertionError:
            self.kill()
            raise
        assert process.poll() is None, self.text()[-3000:]
        return self

    def launch(self) -> "subprocess.Popen[bytes] | Forked":
        """Start it; it may die at once."""
        command = ["-A", self.app, "worker", "-l", "INFO", "-n", f"{self.service}{id(self)}@test"]
        command += ["-c", str(self.concurrency), "--without-gossip", "--without-mingle", *self.options]
        with self.log.open("ab") as out:
            self.offset = out.tell()
        self.process = self._process(command)
        return self.process

    def _process(self, arguments: list[str]) -> "subprocess.Popen[bytes] | Forked":
        with self.log.open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "celery", *arguments],
                cwd=ROOT,
                env=self.environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def has_logged(self, part: str) -> bool:
        return part in self.log.read_bytes()[self.offset :].decode(errors="replace")

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL to the whole worker: parent, children, relay."""
        assert self.process is not None
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(10)

    def terminate(self) -> None:
        """Begin a warm shutdown."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def stop(self) -> None:
        """Warm shutdown; SIGKILL after 15 s."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                pass
        self.kill()

    def end(self) -> None:
        """After a test: at once, for a warm shutdown takes three seconds, and nobody looks at what it does."""
        if self.process is not None:
            self.kill()

    def children(self) -> list[int]:
        assert self.process is not None
        return [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]


class ForkedWorker(Worker):
    """Ready a second of a processor sooner. Not where the start itself is tested, nor with variables CELERY_…, which
    Celery reads when it is imported."""

    def _process(self, arguments: list[str]) -> Forked:
        return Forked(arguments, ROOT, self.environment, self.log)


def client(broker: str) -> Celery:
    """An app that only sends, as a foreign producer: it knows names, not tasks."""
    app = Celery("client", broker=broker, set_as_current=False)
    app.conf.task_default_queue = "jobs"
    return app
