"""The plugin in a project of its own, as pytest finds it when it is installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from celery import Celery

from harness import Harness
from harness.core.errors import ConfigError
from harness.testing.servers import Servers
from tests.services import run_sql

SHOP = """\
from celery import Celery
from sqlalchemy import text
from sqlalchemy.orm import Session

from harness import Harness, Permanent

app = Celery("shop")
app.conf.task_default_queue = "shop"
harness = Harness(app)


@harness.job
def buy(session: Session, n: int) -> None:
    session.execute(text("INSERT INTO bought VALUES (:n)"), {"n": n})
    if n > 9:
        raise Permanent("too many")
"""
TESTS = """\
from shop import buy
from sqlalchemy import text

from harness.testing import Completed, Duplicate


def test_twice(harness_jobs, harness_session):
    assert harness_jobs.run(buy, job_id="fixed", n=1) == Completed()
    assert harness_jobs.run(buy, job_id="fixed", n=1) == Duplicate()
    assert harness_session.execute(text("SELECT n FROM bought")).scalars().all() == [1]


def test_again_nothing_was_left(harness_jobs):
    assert harness_jobs.run(buy, job_id="fixed", n=1) == Completed()


def test_that_fails(harness_worker):
    buy.apply_async((5,), task_id="real")
    harness_worker.wait("real", "done")
    buy.apply_async((10,), task_id="dead")
    harness_worker.wait("dead", "done")


def test_both(harness_jobs, harness_worker):
    raise AssertionError("not reached")
"""
HARMLESS = """\
import sys


def test_nothing_is_imported():
    assert not {"celery", "sqlalchemy", "psycopg2", "harness"} & set(sys.modules)


def test_which_app(harness_jobs):
    raise AssertionError("not reached")
"""
INI = """\
[pytest]
addopts = --strict-markers --strict-config -ra
filterwarnings = error
pythonpath = .
"""


def run(folder: Path, *arguments: str, **environment: str) -> str:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "HARNESS_", "CELERY_"))
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    return done.stdout + done.stderr


def test_a_project(tmp_path: Path, database: str, redis_url: str) -> None:
    run_sql(database, "CREATE TABLE bought (n int)")
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "test_shop.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(f"{INI}harness_app = shop:app\n")
    out = run(tmp_path, "-n", "2", "--dist", "loadfile", HARNESS_DATABASE_URL=database, CELERY_BROKER_URL=redis_url)
    assert "1 failed, 2 passed, 1 error" in out, out
    assert "FAILED test_shop.py::test_that_fails" in out
    assert "'dead' of shop/shop.buy: dead (permanent) after 1 try, last harness.core.errors.Permanent: too many" in out
    assert "harness worker's log, the last 100 lines" in out
    assert "a real worker needs a test of its own" in out
    assert run_sql(database, "SELECT n FROM bought") == [(5,)]
    assert run_sql(database, "SELECT job_id FROM core.processed_jobs ORDER BY 1") == [("dead",), ("real",)]


def test_it_is_harmless_where_it_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(HARMLESS)
    (tmp_path / "pytest.ini").write_text(INI)
    out = run(tmp_path)
    assert "1 passed, 1 error" in out, out
    assert "harness_app = shop.celery:app" in out


@pytest.fixture
def unused(app: Celery) -> Servers:
    return Servers()


def test_a_database_without_tables(unused: Servers, empty_database: str, app: Celery) -> None:
    with pytest.raises(ConfigError, match=r"has no schema 'core'.*harness migrate"):
        unused.database_url(Harness(app, database_url=empty_database))
    assert run_sql(empty_database, "SELECT 1 FROM pg_namespace WHERE nspname = 'core'") == []


def test_a_database_that_is_away(unused: Servers, app: Celery) -> None:
    with pytest.raises(ConfigError, match="does not answer"):
        unused.database_url(Harness(app, database_url="postgresql://nobody@127.0.0.1:1/nowhere"))
