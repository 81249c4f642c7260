"""An app with its settings, looked at in both ways: by `harness check`, and by a worker that starts."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery import Celery
from celery.bin.base import CLIContext
from click.testing import CliRunner, Result
from sqlalchemy.orm import Session

from harness import Harness
from harness.cli import harness as group
from harness.core.errors import ConfigError
from harness.worker import check

#: With these no check has anything to say but that the servers of the tests do not fsync.
SOUND = {
    "task_default_queue": "billing",
    "task_time_limit": 300,
    "task_soft_time_limit": 240,
    "worker_prefetch_multiplier": 1,
    "worker_concurrency": 2,
    "broker_transport_options": {"confirm_publish": True, "visibility_timeout": 600},
}


class Patient:
    """`conf` over `SOUND`; `jobs` adds jobs to the app."""

    def __init__(
        self, database: str, broker: str, conf: dict[str, Any] | None = None, jobs: Callable[[Any], Any] | None = None
    ) -> None:
        self.app = Celery("billing", broker=broker, set_as_current=False)
        self.app.conf.update({**SOUND, "harness_database_url": database, "harness_sentry": False, **(conf or {})})
        self.harness = Harness(self.app)

        @self.harness.job(name="pay", shared=False)
        def pay(session: Session, account: int) -> None: ...

        if jobs is not None:
            jobs(self.harness)

    def run(self, *words: str) -> Result:
        """`celery -A app harness check …`."""
        context = CLIContext(app=self.app, no_color=True, workdir=None)
        result = CliRunner().invoke(group, ["check", "--accept", "fsync", *words], obj=context)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def report(self, *words: str) -> dict[str, Any]:
        """What `--json` says, with the `code` that the command ended with."""
        result = self.run("--json", *words)
        report: dict[str, Any] = json.loads(result.stdout)
        return report | {"code": result.exit_code}

    def findings(self, *words: str) -> dict[str, dict[str, Any]]:
        """The report by name; the first of a name."""
        return {row["name"]: row for row in reversed(self.report(*words)["findings"])}

    def close(self) -> None:
        self.harness.close()
        self.app.close()


@contextmanager
def patient(*arguments: Any, **more: Any) -> Iterator[Patient]:
    made = Patient(*arguments, **more)
    try:
        yield made
    finally:
        made.close()


def start(sick: Patient, caplog: pytest.LogCaptureFixture) -> tuple[str, list[str]]:
    """Start as a worker does; why it was refused ('' for not), and the lines that were logged."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="harness"):
        try:
            check.at_start(sick.harness)
        except ConfigError as error:
            return str(error), caplog.messages
    return "", caplog.messages


def named(lines: list[str], name: str) -> list[str]:
    return [line for line in lines if line.startswith(f"{name}: ")]
