"""The fixtures give what they say."""

import os
import re
import subprocess
import sys

import kombu
import pytest

from harness.dev.service import Service
from tests.dev.test_embedded import ROOT
from tests.services import run_sql


def test_broker_url_is_an_empty_broker(broker_url: str) -> None:
    with kombu.Connection(broker_url) as connection:
        queue = connection.SimpleQueue("jobs")
        with pytest.raises(queue.Empty):
            queue.get_nowait()
        queue.put({"n": 1})
        message = queue.get(timeout=10)
        assert message.payload == {"n": 1}
        message.ack()
        queue.put({"n": 2})
        queue.close()


def test_own_broker_keeps_confirmed_messages_over_kill(own_broker: Service) -> None:
    with kombu.Connection(own_broker.url, transport_options={"confirm_publish": True}) as connection:
        queue = connection.SimpleQueue("jobs")
        queue.put("kept")
        queue.close()
    url, pid = own_broker.url, own_broker.pid
    own_broker.kill()
    assert not own_broker.running
    own_broker.start()
    assert own_broker.url == url
    assert own_broker.pid != pid
    with kombu.Connection(own_broker.url) as connection:
        queue = connection.SimpleQueue("jobs")
        assert queue.get(timeout=10).payload == "kept"
        queue.close()


def test_database_is_fresh_and_migrated(database: str, empty_database: str) -> None:
    schemas = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'core'"
    assert run_sql(database, schemas) > [(0,)]
    assert run_sql(empty_database, schemas) == [(0,)]


def collect_without_programs(*tests: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    clean = {name: value for name, value in os.environ.items() if name not in ("CI", "RABBITMQ_URL")}
    return subprocess.run(command, cwd=ROOT, env=clean | {"PATH": "/nowhere"} | env, capture_output=True, text=True)


HERE = "tests/dev/test_fixtures.py"
NOT_RUN = "not run: 2 RabbitMQ tests: rabbitmq-server is not installed (apt-get install rabbitmq-server)"


def test_without_rabbitmq_its_tests_are_left_out_aloud() -> None:
    result = collect_without_programs(HERE)
    assert result.returncode == 0, result.stdout
    assert NOT_RUN in result.stdout.splitlines()
    assert "[redis]" in result.stdout
    assert "[rabbitmq]" not in result.stdout


def test_in_ci_missing_rabbitmq_is_an_error() -> None:
    result = collect_without_programs(HERE, CI="true")
    assert result.returncode == 4
    assert NOT_RUN in result.stdout + result.stderr


def test_without_a_browser_its_tests_are_left_out_aloud() -> None:
    result = collect_without_programs(HERE, "tests/flower")
    assert result.returncode == 0, result.stdout
    said = [line for line in result.stdout.splitlines() if line.startswith("not run: ")]
    assert len(said) == 2
    assert said[0].endswith(NOT_RUN.partition("tests: ")[2])
    assert re.fullmatch(r"not run: \d+ browser tests: chromium is not installed \(apt-get install chromium\)", said[1])
    assert "tests/flower" not in result.stdout.replace(said[1], "")


def test_in_ci_a_missing_browser_is_an_error() -> None:
    result = collect_without_programs("tests/flower", CI="true")
    assert result.returncode == 4
    assert "browser tests: chromium is not installed" in result.stdout + result.stderr
