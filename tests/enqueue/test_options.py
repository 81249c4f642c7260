"""Whatever an option of an enqueue is, it is taken, or the producer is told what is wrong with it: without a server."""

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from celery import Celery
from kombu.exceptions import EncodeError
from sqlalchemy.orm import Session

from harness import Harness
from harness.core.errors import HarnessError, UsageError
from harness.store.enqueueing import _row
from harness.worker.enqueueing import Options, entry_of

STRANGE: list[Any] = [
    *(None, True, -1, 3.5, math.nan, math.inf, 10**400, "x", "", "a\0b", "\ud800", b"b", [], {}, [1], {"a": 1}),
    *(object(), len, timedelta.max, timedelta(-1), "q" * 2000),
    *(datetime.max, datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))),
]
NAMES = (
    *("job_id", "task_id", "ordering_key", "delay", "countdown", "eta", "priority", "expires", "tenant", "queue"),
    *("headers", "link", "link_error", "serializer", "compression", "shadow", "exchange", "routing_key"),
)


@pytest.fixture
def call() -> Iterator[Any]:
    app = Celery("strange", broker="memory://", set_as_current=False)
    harness = Harness(app, service="tests", database_url="postgresql://nobody@127.0.0.1:1/nothing")

    @harness.job(name="strange", shared=False)
    def job(session: Session, n: int = 1) -> None: ...

    def made(name: str, value: object) -> Any:
        signature = job.s(n=1)
        signature.options[name] = value
        return entry_of(app, signature, Options())

    yield made
    harness.close()
    app.close()


@pytest.mark.parametrize("name", NAMES)
def test_it_is_taken_or_refused_with_a_word(call: Any, name: str) -> None:
    refused = 0
    for value in STRANGE:
        try:
            row = _row(call(name, value))
        except HarnessError as error:
            refused += bool(str(error))
        except EncodeError:
            assert name in ("headers", "shadow"), "what the serializer says of it"
        else:
            assert json.loads(json.dumps(row))["task"] == "strange"
    assert refused or name == "shadow"


def test_a_next_step_that_could_never_be_sent(call: Any) -> None:
    for name in ("link", "link_error"):
        with pytest.raises(UsageError, match="could never be sent"):
            call(name, "the next task")
        with pytest.raises(UsageError, match="names no task"):
            call(name, [{"args": []}])
