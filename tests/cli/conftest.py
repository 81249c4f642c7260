from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from celery import Celery
from celery.bin.base import CLIContext
from click.testing import CliRunner, Result
from sqlalchemy.orm import Session

from harness.cli import harness as group
from harness.worker.harness import Harness
from tests.letters import SERVICE, Place


@pytest.fixture
def place(database: str) -> Iterator[Place]:
    made = Place(database)
    yield made
    made.database.dispose()


class Shell:
    """`celery -A app harness …` in this process."""

    def __init__(self, url: str | None, **settings: Any) -> None:
        self.app = Celery(SERVICE, broker="memory://", set_as_current=False)
        self.harness = Harness(self.app, **({"database_url": url} if url else {}), sentry=False, **settings)
        self.open_gate = False

        @self.harness.job(name="pay", shared=False, can_replay=self.gate)
        def pay(session: Session, account: int, points: int = 1) -> None: ...

    def gate(self, session: Session, arguments: Mapping[str, Any]) -> bool:
        assert arguments == {"account": 7, "points": 1}
        return self.open_gate

    def __call__(self, *words: object, code: int = 0, stdin: str | None = None) -> Result:
        context = CLIContext(app=self.app, no_color=True, workdir=None)
        result = CliRunner().invoke(group, [str(word) for word in words], obj=context, input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, (result.stdout, result.stderr)
        return result

    def json(self, *words: object, code: int = 0) -> Any:
        return json.loads(self(*words, "--json", code=code).stdout)

    def close(self) -> None:
        self.harness.close()


@pytest.fixture
def shell(place: Place) -> Iterator[Shell]:
    made = Shell(place.url)
    yield made
    made.close()
