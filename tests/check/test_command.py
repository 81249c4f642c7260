"""`harness check` as a person and as a script see it, and the start of a real worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.check.doctor import patient

ROOT = Path(__file__).parents[2]
APP = """
from celery import Celery
from sqlalchemy.orm import Session
from harness import Harness

app = Celery("shop", broker="memory://")
harness = Harness(app)

@harness.job(name="pay", acks_late=False)
def pay(session: Session) -> None: ...

@harness.job(name="refund", consumer="pay")
def refund(session: Session) -> None: ...
"""


def celery(folder: Path, database: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "shop.py").write_text(APP)
    return subprocess.run(
        [sys.executable, "-m", "celery", "-A", "shop", *words],
        cwd=folder,
        env=os.environ | {"HARNESS_DATABASE_URL": database, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_real_worker_is_refused_with_all_reasons(empty_database: str, tmp_path: Path) -> None:
    ended = celery(tmp_path, empty_database, "worker", "-P", "solo", "-c", "1")
    said = ended.stdout + ended.stderr
    assert ended.returncode != 0
    for line in (
        "same-consumer: The jobs pay and refund",
        "schema: The schema 'core'",
        "pool-limits: The pool is solo",
    ):
        assert line in said
    assert "Traceback" not in said


def test_the_command_line(empty_database: str, tmp_path: Path) -> None:
    ended = celery(tmp_path, empty_database, "harness", "check")
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout.startswith("BROKEN  same-consumer\n")
    assert "celery -A shop harness migrate" in " ".join(ended.stdout.split())
    assert "Traceback" not in ended.stdout + ended.stderr


def test_a_person_reads_it_at_80_columns(sound_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    conf = {"task_always_eager": True, "accept_content": ["pickle"], "task_acks_on_failure_or_timeout": False}
    with patient(sound_database, "redis://:secret@127.0.0.1:1/0", conf) as sick:
        text = sick.run().stdout
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert "secret" not in text
    heads = [line.split()[0] for line in lines if line.split(" ")[0].isupper()]
    assert heads == ["BROKEN", "BROKEN", "WARNING", "WARNING", "CORRECTED", "ACCEPTED"]
    assert "Not looked at: the broker cannot be reached. (redis-eviction," in text
    assert lines[-1].startswith("61 checks: 2 broken, 2 warnings, 5 unknown, 1 corrected, 1 accepted, ")


def test_exit_codes(sound_database: str) -> None:
    with patient(sound_database, "memory://") as sick:
        assert sick.run().exit_code == 0
        assert sick.run("--strict").exit_code == 1
        assert sick.run("--strict", "--accept", "broker-transport", "--accept", "beat-seen").exit_code == 0
        assert sick.run("--accept", "nonsense").exit_code == 2
        sick.app.conf.task_always_eager = True
        assert sick.run().exit_code == 1
        assert sick.run("--accept", "always-eager").exit_code == 0


def test_json(sound_database: str) -> None:
    with patient(sound_database, "memory://") as sick:
        result = sick.run("--json")
        report = json.loads(result.stdout)
        assert report["ok"] is True
        assert report["counts"]["accepted"] == 1
        assert sum(report["counts"].values()) == len(report["findings"])
        assert set(report["findings"][0]) == {"name", "verdict", "what", "means", "do", "about", "crashed"}
        assert {finding["crashed"] for finding in report["findings"]} == {False}
        sick.app.conf.task_always_eager = True
        report = sick.report()
        assert (report["ok"], report["findings"][0]["name"]) == (False, "always-eager")


def test_no_server_at_all_is_no_traceback() -> None:
    with patient("postgresql://me:secret@127.0.0.1:1/none", "amqp://me:secret@127.0.0.1:1//") as sick:
        report = sick.report()
        assert report["code"] == 1
        broken = [row["name"] for row in report["findings"] if row["verdict"] == "broken"]
        assert broken == ["database", "broker"]
        assert "secret" not in str(report)


def test_a_broker_of_no_kind(sound_database: str) -> None:
    with patient(sound_database, "nonsense://somewhere") as sick:
        assert sick.findings()["broker"]["verdict"] == "broken"
