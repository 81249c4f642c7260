"""An assertion that fails says what there is instead."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from harness.testing import POINTS, Jobs, steady_jitter
from harness.testing.process import WorkerProcess
from tests.testing.bank import jobs_of


@pytest.fixture
def bank(harness: Harness) -> Any:
    return jobs_of(harness)


def test_of_enqueued(harness_jobs: Jobs, bank: Any) -> None:
    with pytest.raises(AssertionError) as told:
        harness_jobs.assert_enqueued(bank.credit)
    assert str(told.value) == "credit was not sent. Sent was nothing."
    bank.credit.apply_async(kwargs={"points": 5}, task_id="order-1")
    bank.plain.apply_async((1,), task_id="other", queue="slow")
    with pytest.raises(AssertionError) as told:
        harness_jobs.assert_enqueued(bank.credit, kwargs={"points": 6}, queue="bank")
    assert str(told.value) == (
        "credit with kwargs={'points': 6}, queue='bank' was not sent. Sent was:\n"
        "  credit(points=5) as 'order-1' to queue 'bank'\n"
        "  plain(1) as 'other' to queue 'slow'"
    )
    with pytest.raises(AssertionError, match=r"^credit was sent once, not 2 times\. Sent was:"):
        harness_jobs.assert_enqueued(bank.credit, times=2)
    with pytest.raises(AssertionError, match=r"^any job was sent\. Sent was:\n  credit"):
        harness_jobs.assert_not_enqueued()
    harness_jobs.assert_enqueued(bank.fails, times=0)
    harness_jobs.assert_not_enqueued(bank.fails)


def test_of_deferred_and_dead(harness_jobs: Jobs, bank: Any, harness: Harness) -> None:
    service = harness.settings.service
    with pytest.raises(AssertionError) as told:
        harness_jobs.assert_dead(bank.fails, reason="exhausted")
    assert str(told.value) == "fails with reason='exhausted' is no dead letter. There is nothing."
    with steady_jitter(0):
        harness_jobs.run(bank.fails, job_id="b")
    harness_jobs.run(bank.credit, job_id="a")
    harness_jobs.run(bank.credit, job_id="c", points=-1)
    letter = harness_jobs.assert_dead(job_id="c")
    rows = (
        f"\n  'a' of {service}/credit: done"
        f"\n  'b' of {service}/fails: deferred, due in 10.0 s, 1 try spent, last ValueError: try 1 failed"
        f"\n  'c' of {service}/credit: dead (invalid_payload) after 1 try, last {letter.error_type}: "
    )
    for call, text in (
        (lambda: harness_jobs.assert_dead(bank.fails, error=ValueError), "fails with error=ValueError is no dead"),
        (lambda: harness_jobs.assert_deferred(bank.fails, delay=11), "fails with delay=11 is not deferred. There is:"),
        (lambda: harness_jobs.assert_deferred(bank.fails, error=KeyError), "with error=KeyError is not deferred"),
        (lambda: harness_jobs.assert_deferred("credit"), "credit is not deferred"),
        (lambda: harness_jobs.assert_done(job_id="c"), "any job with job_id='c' is not done"),
    ):
        with pytest.raises(AssertionError) as told:
            call()
        assert text in str(told.value)
        assert rows in str(told.value)


def test_every_fail_point_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "testing.md").read_text()
    assert [point for point in POINTS if f"`{point}`" not in page] == []


def test_a_group_is_killed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = WorkerProcess("none", tmp_path, broker_url="", database_url="", service="none")
    worker.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    worker.kill()
    assert worker.process.returncode == -signal.SIGKILL
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("the group's number may be another one's"))
    worker.stop()
