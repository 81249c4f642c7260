"""``harness dev``: everything is up, a job takes effect, one signal ends it all, nothing outlives it."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import psycopg2
from kombu import Connection

from tests.dev.test_embedded import ROOT, gone
from tests.services import run_sql
from tests.worker.running import until

RUN = """
import sys
from pathlib import Path
from harness import dev
flower, embedded = "flower" in sys.argv, "embedded" in sys.argv
app = "tests.dev.sourceapp" if "sources" in sys.argv else "tests.dev.devapp"
sys.exit(dev.run(app, data=Path(sys.argv[1]), pool_size=1, flower=flower, embedded=embedded))
"""


GONE = {"HARNESS_DATABASE_URL": "postgresql"} | dict.fromkeys(
    ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL", "CELERY_RESULT_BACKEND"), "redis"
)


class Dev:
    """A running ``harness dev`` with what it has printed."""

    def __init__(self, process: subprocess.Popen[str], output: Path, data: Path) -> None:
        self.process = process
        self.data = data
        self._output = output
        self.children: set[psutil.Process] = set()

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def wait_for(self, pattern: str, seconds: float = 180) -> re.Match[str]:
        deadline = time.monotonic() + seconds
        while (found := re.search(pattern, self.output, re.M)) is None:
            assert self.process.poll() is None, f"ended with status {self.process.returncode}:\n{self.output}"
            assert time.monotonic() < deadline, f"no {pattern!r} after {seconds} s in:\n{self.output}"
            time.sleep(0.05)
        self.children |= set(psutil.Process(self.process.pid).children(recursive=True))
        return found

    def child(self, matches: Callable[[list[str]], bool]) -> psutil.Process:
        """The direct child whose command line matches."""
        (found,) = [p for p in psutil.Process(self.process.pid).children() if matches(p.cmdline())]
        return found

    def environment(self) -> dict[str, str]:
        """What the file for other shells says."""
        command = ["sh", "-c", '. "$0" && env', str(self.data / "env")]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        return dict(line.split("=", 1) for line in lines if line.split("=")[0] in GONE)

    def left_over(self) -> list[psutil.Process]:
        return [child for child in self.children if not gone(child.pid)]


@contextmanager
def running(tmp_path: Path, *options: str, flower: bool = False, embedded: bool = False, **env: str) -> Iterator[Dev]:
    output, data = tmp_path / "output", tmp_path / "data"
    command = [sys.executable, "-c", RUN, str(data), *options, *["flower"] * flower, *["embedded"] * embedded]
    clean = {name: value for name, value in os.environ.items() if name not in GONE}
    with (
        output.open("w") as stream,
        subprocess.Popen(command, cwd=ROOT, env=clean | env, stdout=stream, stderr=stream, text=True) as process,
    ):
        try:
            yield Dev(process, output, data)
        finally:
            if process.poll() is None:
                process.kill()


def send(environment: dict[str, str], value: str) -> None:
    code = f"from tests.dev.devapp import book; book.delay(value={value!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ | environment, check=True)


def test_runs_a_job_and_stops_in_order(tmp_path: Path) -> None:
    with running(tmp_path, flower=True) as dev:
        dev.wait_for(r"worker \|.* ready\.")
        dev.wait_for(r"dev \| flower +http://harness:[\w-]+@127\.0\.0\.1:\d+/")
        environment = dev.environment()
        database = environment["HARNESS_DATABASE_URL"].replace("+psycopg2", "")
        run_sql(database, "CREATE TABLE kept (value text)")
        send(environment, "one")
        while not run_sql(database, "SELECT 1 FROM core.processed_jobs"):
            assert dev.process.poll() is None, dev.output
            time.sleep(0.05)
        assert run_sql(database, "SELECT value FROM kept") == [("one",)]
        dev.wait_for("started; Ctrl-C stops all")
        dev.process.send_signal(signal.SIGINT)
        assert dev.process.wait(40) == 0, dev.output
        stopped = re.findall(r"dev \| stopping (\w+)", dev.output)
        assert stopped == ["flower", "beat", "worker", "valkey", "postgres"]
        assert dev.left_over() == []
        assert " flower | " not in dev.output, "it has nothing to warn of"
        assert [file for file in (dev.data / "flower").iterdir() if file.name.startswith("memory")]
        assert not (dev.data / "env").exists()
        assert environment["HARNESS_DATABASE_URL"].split("@")[0] not in dev.output  # the password


def test_messages_of_others_are_taken_in(tmp_path: Path) -> None:
    """The app declares a source: the worker brings a receiver along, `harness check` sees it, and it ends with all."""
    with running(tmp_path, "sources") as dev:
        dev.wait_for(r"worker \|.* ready\.")
        found = dev.wait_for(r"worker \|.*receive: ready, receiver pid=(\d+) takes in from letters \(queue letters\)")
        environment = dev.environment()
        database = environment["HARNESS_DATABASE_URL"].replace("+psycopg2", "")
        run_sql(database, "CREATE TABLE kept (value text)")
        with Connection(environment["CELERY_BROKER_URL"]) as connection, connection.SimpleQueue("letters") as queue:
            queue.put({"value": "from outside"}, serializer="json", message_id="letter-1")
        until(lambda: run_sql(database, "SELECT value FROM kept") == [("from outside",)], 60, dev.output)
        command = [sys.executable, "-m", "celery", "-A", "tests.dev.sourceapp", "harness", "check", "--json"]
        checked = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)
        findings = {row["name"]: row for row in json.loads(checked.stdout)["findings"]}
        seen = findings["receiver-seen"]
        assert (seen["verdict"], seen["what"][:17]) == ("ok", "Seen: letters on "), checked.stdout
        dev.process.send_signal(signal.SIGINT)
        assert dev.process.wait(40) == 0, dev.output
        assert gone(int(found[1]))
        assert dev.left_over() == []


def test_a_part_that_dies_ends_it_with_status_1(tmp_path: Path) -> None:
    with running(tmp_path) as dev:
        dev.wait_for(r"worker \|.* ready\.")
        dev.child(lambda line: "worker" in line).kill()
        assert dev.process.wait(40) == 1
        assert re.search(r"ended unexpectedly: worker \(status -9\); stopping all", dev.output)
        assert dev.output.rstrip().endswith("stopped")
        assert dev.left_over() == []


def test_a_server_that_dies_ends_it_with_status_1(tmp_path: Path) -> None:
    with running(tmp_path) as dev:
        dev.wait_for(r"worker \|.* ready\.")
        dev.child(lambda line: "postgres" in line[0]).kill()
        assert dev.process.wait(60) == 1
        assert "ended unexpectedly: postgres (see " in dev.output
        assert dev.left_over() == []


def test_nothing_outlives_its_kill(tmp_path: Path) -> None:
    with running(tmp_path) as dev:
        dev.wait_for(r"worker \|.* ready\.")
        dev.process.kill()
        dev.process.wait()
        assert len(dev.children) >= 4
        assert dev.left_over() == []


def test_configured_servers_win(tmp_path: Path, database: str, redis_url: str) -> None:
    with running(tmp_path, HARNESS_DATABASE_URL=database, CELERY_BROKER_URL=redis_url) as dev:
        dev.wait_for(r"worker \|.* ready\.")
        assert [p.name for p in dev.data.iterdir() if not p.name.startswith("celerybeat-schedule")] == ["lock"]
        (tmp_path / "second").mkdir()
        (tmp_path / "second" / "data").symlink_to(dev.data)
        with running(tmp_path / "second", HARNESS_DATABASE_URL=database, CELERY_BROKER_URL=redis_url) as second:
            assert second.process.wait(30) == 1, "two beats with one schedule file"
            assert f"/data is in use by process {dev.process.pid}: stop that first" in second.output
        assert dev.process.poll() is None
        dev.process.send_signal(signal.SIGTERM)
        assert dev.process.wait(40) == 0
        assert "from HARNESS_DATABASE_URL in the environment, " in dev.output
        assert "from CELERY_BROKER_URL in the environment, " in dev.output
        assert database.split("@")[0] not in dev.output


def test_embedded_servers_win_when_asked_for(tmp_path: Path) -> None:
    gone = {name: f"{scheme}://nobody:secret@127.0.0.1:1/0" for name, scheme in GONE.items()}
    with running(tmp_path, embedded=True, **gone) as dev:
        dev.wait_for(r"worker \|.* ready\.")
        environment = dev.environment()
        assert environment["HARNESS_DATABASE_URL"].startswith("postgresql+psycopg2://harness:")
        assert environment["CELERY_RESULT_BACKEND"] == environment["CELERY_BROKER_URL"].removesuffix("/0") + "/1"
        send(environment, "one")
        database = environment["HARNESS_DATABASE_URL"].replace("+psycopg2", "")
        while not run_sql(database, "SELECT 1 FROM core.processed_jobs"):
            assert dev.process.poll() is None, dev.output
            time.sleep(0.05)
        dev.process.send_signal(signal.SIGTERM)
        assert dev.process.wait(40) == 0, dev.output
    assert "the configured" not in dev.output


def test_configured_servers_that_do_not_answer(tmp_path: Path, redis_url: str) -> None:
    gone = "postgresql://nobody:secret@127.0.0.1:1/gone"
    with running(tmp_path, HARNESS_DATABASE_URL=gone, CELERY_BROKER_URL=redis_url) as dev:
        assert dev.process.wait(60) == 1
    assert "to use servers that come along instead of the configured ones: --embedded" in dev.output


def test_a_second_run_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as first:
        first.wait_for(r"dev \| valkey +127\.0\.0\.1:\d+")
        (tmp_path / "second").mkdir()
        (tmp_path / "second" / "data").symlink_to(first.data)
        with running(tmp_path / "second") as second:
            assert second.process.wait(30) == 1
            assert re.search(rf"error: .*/data is in use by process {first.process.pid}: stop that", second.output)
        first.process.send_signal(signal.SIGTERM)  # also while it still starts
        assert first.process.wait(40) == 0


def test_variables_of_an_earlier_run_are_not_the_users(tmp_path: Path) -> None:
    gone_server = "postgresql://nobody@127.0.0.1:1/gone"
    with running(tmp_path, HARNESS_DATABASE_URL=gone_server, HARNESS_DEV_FOLDER=str(tmp_path / "data")) as dev:
        dev.wait_for(r"dev \| data")
        dev.process.send_signal(signal.SIGTERM)
        assert dev.process.wait(40) == 0


def test_the_addresses_come_first_and_a_second_signal_kills(tmp_path: Path) -> None:
    with running(tmp_path) as dev:
        dev.wait_for("started; Ctrl-C stops all")
        dev.wait_for(r"worker \|.* ready\.")
        lines = [line.split("|")[0].strip() for line in dev.output.splitlines()]
        assert [name for name, _ in itertools.groupby(lines)][:3] == ["dev", "migrate", "dev"], dev.output
        told = re.findall(r"dev \| (\w+) ", dev.output)
        assert told == ["data", "postgres", "valkey", "worker", "beat", "shells"]
        environment = dev.environment()
        database = environment["HARNESS_DATABASE_URL"].replace("+psycopg2", "")
        run_sql(database, "CREATE TABLE kept (value text)")
        with closing(psycopg2.connect(database)) as connection, connection.cursor() as cursor:
            cursor.execute("LOCK TABLE kept")
            send(environment, "one")
            dev.wait_for(r"worker \|.* received")
            dev.process.send_signal(signal.SIGINT)
            dev.wait_for("stopping; Ctrl-C once more kills what has not ended")
            dev.wait_for("Warm shutdown")
            dev.process.send_signal(signal.SIGINT)
            assert dev.process.wait(40) == 0, dev.output
        assert "killing worker: a second signal asked for it" in dev.output
        assert dev.left_over() == []
