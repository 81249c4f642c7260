"""Everything that a release does with the tables, on real processes: workers, relay, and an operator's commands."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from celery import Celery

from harness.dev.process import spawn
from tests.migration.releases import Release
from tests.services import run_sql
from tests.worker.running import until

#: What PostgreSQL says to code that the tables do not fit.
_UNFIT = re.compile(
    r"^.*(?:ProgrammingError|IntegrityError|Undefined(?:Column|Table|Function|Object)|NotNullViolation|CheckViolation|"
    r"DatatypeMismatch|InsufficientPrivilege|permission denied|does not exist|null value in column).*$",
    re.MULTILINE,
)
ONCE = {"completes": "completes", "again": "completes", "fails_once": "fails_once", "loses_process": "loses_process"}
DEAD = {"never": "never", "by_hand": "waits_for_switch", "by_sweep": "waits_for_switch"}


class Broken(Exception):
    """A release does not work on these tables."""


class Scene:
    """One release on one database and one broker. `url`: the role of its processes; `admin`: who looks and prepares."""

    def __init__(
        self, release: Release, url: str, broker: str, folder: Path, *, admin: str = "", schema: str = "core"
    ) -> None:
        self.release, self.broker, self.schema, self.admin = release, broker, schema, admin or url
        self.log = folder / f"{release.name.replace(' ', '-')}.log"
        self.environment = {
            "CELERY_BROKER_URL": broker,
            "HARNESS_DATABASE_URL": url,
            "ROLLOUT_SCHEMA": schema,
        }

    def prepare(self) -> None:
        """The project's own tables."""
        run_sql(self.admin, "CREATE TABLE IF NOT EXISTS ledger (job_id text, task text, note text)")
        run_sql(self.admin, "CREATE TABLE IF NOT EXISTS switch (is_on bool)")

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """A worker with its relay, ready; ended with SIGTERM. Raises Broken where it does not start or end well."""
        command = [sys.executable, "-m", "celery", "-A", "rollout_app", "worker", "--loglevel=INFO", "--concurrency=1"]
        command += ["--without-gossip", "--without-mingle", f"--hostname={self.release.tree.name}@test"]
        with self.log.open("wb") as out:
            process = spawn(
                command,
                folder=self.log.parent,
                death_signal=signal.SIGKILL,
                output=out,
                env=self.release.environment(**self.environment),
            )
        try:
            until(lambda: " ready." in self.text() or process.poll() is not None, 240, "the worker is ready")
            if process.poll() is not None:
                raise Broken(self.text()[-1500:])
            yield process
            process.terminate()
            if (code := process.wait(120)) != 0:
                raise Broken(f"the worker ended with {code}: {self.text()[-1500:]}")
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(10)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def send(self, job_id: str, task: str) -> None:
        """As a producer does that knows names only."""
        with Celery("producer", broker=self.broker, set_as_current=False) as producer:
            producer.send_task(task, task_id=job_id, queue="rollout")

    def query(self, statement: str) -> list[Any]:
        return run_sql(self.admin, statement.replace("core.", f"{self.schema}."))

    def wait(self, what: str, statement: str, expected: object, seconds: float = 180) -> None:
        """Until a query answers `expected`. Raises Broken, at once where the log says that the tables do not fit."""

        def settled() -> bool:
            if unfit := _UNFIT.search(self.text()):
                raise Broken(f"{self.release.name}: {unfit[0]}")
            return dict(self.query(statement)) == expected

        try:
            until(settled, seconds)
        except AssertionError:
            seen = dict(self.query(statement))
            raise Broken(f"{what}: {seen}, expected {expected}; {self.text()[-1500:]}") from None

    @contextmanager
    def operator(self) -> Iterator[Callable[[str], Any]]:
        """Someone at the command line of this release: takes a step, returns what was printed. Raises Broken."""
        with (
            (self.log.with_suffix(".operator")).open("w+") as errors,
            subprocess.Popen(
                [sys.executable, str(_OPERATE)],
                cwd=self.log.parent,
                env=self.release.environment(**self.environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as process,
        ):
            assert process.stdin is not None
            assert process.stdout is not None

            def step(name: str) -> Any:
                print(name, file=process.stdin, flush=True)
                if not (line := process.stdout.readline()):
                    raise Broken(Path(errors.name).read_text()[-1500:])
                return json.loads(line)

            yield step


_OPERATE = Path(__file__).with_name("app") / "operate.py"
EFFECTS = "SELECT job_id, count(*) FROM ledger GROUP BY 1"
FENCES = "SELECT job_id, state FROM core.processed_jobs"
OPEN = "SELECT job_id, reason FROM core.dead_letters WHERE resolved_at IS NULL"
LETTERS = "SELECT job_id, status FROM core.dead_letters"
WAITING = "SELECT job_id, attempts FROM core.inbox"


def play(scene: Scene) -> None:
    """Jobs complete, come twice, are deferred, lose their process, die, are discarded, replayed, swept and pruned.

    Raises Broken where one of these does not end as it should.
    """
    scene.prepare()
    with scene.operator() as operate, scene.worker():
        for job_id, task in (ONCE | DEAD).items():
            scene.send(job_id, task)
        scene.send("again", "completes")
        done, dead = dict.fromkeys(ONCE, "done"), dict.fromkeys(DEAD, "dead")
        scene.wait("the fences", FENCES, done | dead)
        scene.wait("the letters", OPEN, dict.fromkeys(DEAD, "permanent"))
        scene.query("INSERT INTO switch VALUES (true)")
        report = operate("letters")
        if report["swept"]["replayed"] != 1:
            raise Broken(f"the sweep: {report}")
        replayed = dict.fromkeys(("by_hand", "by_sweep"), "done")
        scene.wait("the fences after the replays", FENCES, done | replayed | {"never": "dead"})
        scene.wait("open letters", OPEN, {})
        scene.wait("the letters' ends", LETTERS, {"never": "discarded", "by_hand": "replayed", "by_sweep": "replayed"})
        scene.wait("the inbox", WAITING, {})
        scene.wait("the effects", EFFECTS, dict.fromkeys([*ONCE, *replayed], 1))
        if (pruned := operate("prune"))["fences"] != len(ONCE | DEAD):
            raise Broken(f"prune: {pruned}")
