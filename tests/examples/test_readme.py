"""README.md says nothing that is not so: its example is run, its settings are compared, its commands exist."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from harness.cli import harness as commands
from harness.core.reason import Reason
from tests.examples import settings_table
from tests.services import run_sql
from tests.worker.running import until

TEXT = settings_table.README.read_text(encoding="utf-8")
CELERY = [sys.executable, "-m", "celery", "-A", "shop"]


def example() -> str:
    """The code below the mark, as a reader would copy it."""
    found = re.search(r"<!-- example: [^\n]*-->\n```python\n(.*?)```", TEXT, re.S)
    assert found is not None
    return found[1]


@contextmanager
def running(command: list[str], folder: Path, env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_the_example(empty_database: str, broker_url: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(example())
    env = os.environ | {"HARNESS_DATABASE_URL": empty_database, "CELERY_BROKER_URL": broker_url}
    subprocess.run([*CELERY, "harness", "migrate"], cwd=tmp_path, env=env, check=True, capture_output=True)
    log = tmp_path / "worker.log"
    with running([*CELERY, "worker", "-c", "1", "-l", "INFO"], tmp_path, env, log) as worker:
        subprocess.run([sys.executable, "shop.py"], cwd=tmp_path, env=env, check=True, capture_output=True)
        until(lambda: re.search(r" dead job_id=order-2 ", log.read_text()) or worker.poll() is not None, 60, "a letter")
        assert worker.poll() is None, log.read_text()[-3000:]
        until(lambda: re.search(r" duplicate job_id=order-1 ", log.read_text()), 60, "a duplicate")
    assert run_sql(empty_database, "SELECT account_id, points FROM credits") == [(7, 50)]
    fences = run_sql(empty_database, "SELECT job_id, state FROM core.processed_jobs ORDER BY job_id")
    assert fences == [("order-1", "done"), ("order-2", "dead")]
    letters = run_sql(empty_database, "SELECT job_id, reason FROM core.dead_letters")
    assert letters == [("order-2", "invalid_payload")]
    listed = subprocess.run(
        [*CELERY, "harness", "dead-letters", "list"], cwd=tmp_path, env=env, check=True, capture_output=True, text=True
    )
    assert "order-2" in listed.stdout


def test_the_example_is_short() -> None:
    assert len([line for line in example().splitlines() if line.strip()]) <= 20


def test_the_settings() -> None:
    assert settings_table.written() == settings_table.table(), "run: python -m tests.examples.settings_table"


@pytest.mark.parametrize("line", sorted(set(re.findall(r"(?:yourapp|shop) harness ([^\n`]+)", TEXT))))
def test_a_command(line: str) -> None:
    """Each command of README.md is one, with these options."""
    words = re.findall(r'"[^"]*"|\S+', line.split("#")[0])
    group: click.Command = commands
    while isinstance(group, click.Group):
        name = words.pop(0)
        assert name in group.commands, line
        group = group.commands[name]
    known = {option for parameter in group.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_the_reasons() -> None:
    """A reason that README.md names is one."""
    named = set(re.findall(r"`(?:dead)`, (?:reason )?`(\w+)`", TEXT))
    assert len(named) > 5
    assert named <= {str(reason) for reason in Reason}


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", TEXT))))
def test_a_link(path: str) -> None:
    assert (settings_table.README.parent / path).exists()
