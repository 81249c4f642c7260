from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.conftest import Shell
from tests.letters import Place


def test_a_job_from_the_command_line(shell: Shell, place: Place) -> None:
    words = ("enqueue", "pay", "--kwargs", '{"account": 7}', "--job-id", "order-1")
    assert shell(*words, "--delay", "2h", "--priority", 3, "--tenant", "acme").stdout == "order-1 enqueued\n"
    row = place.waiting("order-1")
    assert (row.priority, row.tenant, row.message.queue) == (3, "acme", "celery")
    assert json.loads(row.message.body)[:2] == [[], {"account": 7}]
    assert row.available_at > datetime.now(UTC) + timedelta(hours=1)
    assert shell.json(*words) == {"job_id": "order-1", "state": "waiting"}
    shell("enqueue", "pay", "--args", "[7]", "--job-id", "when", "--eta", "2040-01-31T09:00:00+01:00")
    assert place.waiting("when").available_at == datetime(2040, 1, 31, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nothing",), 1, "Its jobs: "),
        (("pay",), 1, "account"),
        (("pay", "--kwargs", "[]"), 2, "no JSON object"),
        (("pay", "--args", "{"), 2, "no JSON"),
        (("pay", "--args", "[" * 100_000), 2, "no JSON that can be read: maximum recursion depth"),
        (("pay", "--args", "[7]", "--eta", "soon"), 2, "ISO 8601"),
        (("pay", "--args", "[7]", "--eta", "2040-01-31T09:00:00"), 1, "time zone"),
        (("pay", "--args", "[7]", "--delay", "1h", "--eta", "2040-01-31T09:00:00Z"), 1, "Give one"),
        (("pay", "--args", "[8]", "--job-id", "taken"), 1, "other arguments"),
    ],
)
def test_what_is_refused(shell: Shell, place: Place, words: tuple[str, ...], code: int, said: str) -> None:
    shell("enqueue", "pay", "--args", "[7]", "--job-id", "taken")
    assert said in " ".join(shell("enqueue", *words, code=code).stderr.split())
    assert place.one("SELECT count(*) FROM core.inbox") == 1
