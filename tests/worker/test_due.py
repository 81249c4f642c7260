"""Two beats with the same schedule send one job; one beat loses none."""

import random
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from celery import Celery, beat
from celery.schedules import crontab, schedule, solar

from harness import Harness
from harness.worker.due import due_time, install, take_id
from tests.worker.running import ROOT, State, Worker, until

START = datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize("every", [0.5, 10.0, 3600.0, 86_400.0])
def test_an_interval_is_named_by_its_slot(every: float) -> None:
    """Two beats that are out of step: each slot gets a name, and no beat uses a name twice."""
    for lag in (0.0, every / 3, every * 0.999):
        now, seen = START + timedelta(seconds=lag), []
        for _ in range(200):
            seen.append(due_time(schedule(every), now, now))
            now += timedelta(seconds=every + random.choice((0.0, 1e-6, every / 7)))
        assert len(set(seen)) == len(seen)
        assert all(named is not None and timedelta(0) <= now - named for named in seen)


def test_a_crontab_is_named_by_its_time() -> None:
    app = Celery("tests", set_as_current=False)
    hourly = crontab(minute="30", app=app)
    for last_run in (START, START + timedelta(minutes=29)):
        for late in (0, 7, 3600):
            now = START + timedelta(minutes=30, seconds=late)
            assert due_time(hourly, last_run, now) == datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    app = Celery("berlin", set_as_current=False)
    app.conf.timezone = "Europe/Berlin"
    daily = crontab(minute="0", hour="8", app=app)
    named = due_time(daily, START, START)
    assert named is not None
    assert named.astimezone(UTC) == datetime(2026, 3, 2, 8, tzinfo=ZoneInfo("Europe/Berlin"))


def test_other_schedules_have_no_name() -> None:
    assert due_time(solar.__new__(solar), START, START) is None
    assert due_time(schedule(0.0), START, START) is None


def test_only_a_job_that_beat_sends_and_only_the_first(database: str) -> None:
    app = Celery("tests", broker="memory://", set_as_current=False)
    harness = Harness(app, database_url=database)
    sent: dict[str, list[str]] = {"job": [], "plain": [], "own": []}

    @harness.job(name="job", shared=False)
    def job() -> None: ...

    @app.task(name="plain", shared=False)
    def plain() -> None: ...

    app.conf.beat_schedule = {
        "often": {"task": "job", "schedule": 10.0},
        "plain": {"task": "plain", "schedule": 10.0},
        "own": {"task": "job", "schedule": 10.0, "options": {"task_id": "own"}},
    }
    scheduler = beat.Scheduler(app, lazy=True)
    scheduler.setup_schedule()
    install(app, scheduler)
    for name, found in sent.items():
        entry = scheduler.schedule["often" if name == "job" else name]
        scheduler.reserve(entry)
        found += [scheduler.apply_async(entry, advance=False).id for _ in range(2)]
    assert len(set(sent["job"])) == 1
    assert sent["job"][0].startswith("often@20")
    assert len(set(sent["plain"])) == 2
    assert set(sent["own"]) == {"own"}
    assert take_id() is None
    assert "@" not in job.apply_async().id


def test_two_beats_and_one_that_has_lost_its_schedule(
    start_worker: Callable[..., Worker], state: State, tmp_path: Path
) -> None:
    entries = {"sweep": {"task": "credit", "schedule": 1.0}}
    worker = start_worker(beat_schedule=entries)
    beats: list[subprocess.Popen[bytes]] = []

    def start(number: int) -> None:
        command = [sys.executable, "-m", "celery", "-A", "tests.worker.app", "beat", "--pidfile="]
        command += ["-s", str(tmp_path / f"schedule{number}")]
        with (tmp_path / f"beat{number}.log").open("ab") as log:
            beats.append(subprocess.Popen(command, cwd=ROOT, env=worker.environment, stdout=log, stderr=log))

    def slots() -> int:
        return int(state.sql("SELECT count(DISTINCT job_id) FROM ledger")[0][0])

    try:
        start(1)
        start(2)
        until(lambda: worker.text().count(" duplicate job_id=sweep@") >= 3, 180, "the second beat's are duplicates")
        for one in beats:
            one.kill()
        for one in beats:
            one.wait(20)
        for file in tmp_path.glob("schedule*"):
            file.unlink()
        before = slots()
        start(1)
        until(lambda: slots() >= before + 2, 180, "it goes on without its file")
    finally:
        for one in beats:
            one.terminate()
        for one in beats:
            one.wait(20)
    time.sleep(0.5)
    rows = state.sql("SELECT job_id, count(*) AS n FROM ledger GROUP BY 1")
    assert len(rows) >= 3
    assert {row.n for row in rows} == {1}
    assert all(row.job_id.startswith("sweep@20") for row in rows)
    assert state.letters() == []
