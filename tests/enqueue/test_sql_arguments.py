"""The SQL function compares arguments as Python does: whatever has become of the job that has the id."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from harness import ConflictingJob
from harness.core.message import digest
from harness.store.processed_jobs import FenceState, Key
from tests.enqueue.conftest import Shop

CALL = "SELECT state FROM core.enqueue('tests', 'echo', 'jobs', kwargs => CAST(:kwargs AS json), job_id => :id)"
DIGEST = "SELECT core.arguments_digest(CAST(:args AS json), CAST(:kwargs AS json))"
NUMBERS = (0, -1, 2**70, -(10**20), 0.1, -0.0, 100.0, 1e14, 999999999999999.9, 1e-4, 1e-5, 1e-7, 5e-324, 1.5e-300)
LETTERS = 'abZ09 "\\/\n\t\r\b\f\x01\x1f\x7féß€😀日\u2028'


def ask(shop: Shop, job_id: str, kwargs: str) -> str:
    [(state,)] = shop.state.sql(CALL, kwargs=kwargs, id=job_id)
    return str(state)


def refusal(shop: Shop, job_id: str, kwargs: str) -> str:
    """The SQLSTATE of a call that is refused."""
    with pytest.raises(DBAPIError) as refused:
        ask(shop, job_id, kwargs)
    return str(getattr(refused.value.orig, "pgcode", ""))


def known(shop: Shop, job_id: str, state: FenceState, kwargs: dict[str, Any]) -> None:
    """A worker has decided a job with these arguments."""
    with shop.harness.database.begin() as session:
        content = digest([], kwargs)
        shop.harness.store.fence.take(session, Key(job_id, "tests/echo"), state, relayed=False, digest=content)


@pytest.mark.parametrize("state", [FenceState.DONE, FenceState.DEAD])
def test_other_arguments_than_those_of_a_job_that_is_decided(shop: Shop, state: FenceState) -> None:
    known(shop, "a", state, {"x": [1, "é😀"], "y": 2.5})
    for same in ('{"y": 2.5, "x": [1, "\\u00e9\\ud83d\\ude00"]}', '{ "x":[1,"é😀"], "y":9, "y":25e-1 }'):
        assert ask(shop, "a", same) == str(state)
    for other in ('{"x": [1, "é"], "y": 2.5}', '{"x": [1.0, "é😀"], "y": 2.5}', "{}"):
        assert refusal(shop, "a", other) == "23505"
        with shop.begin() as session, pytest.raises(ConflictingJob):
            shop.harness.enqueue(session, shop.echo.s(**json.loads(other)), job_id="a")
    assert shop.rows() == []


def test_a_job_in_the_inbox_is_compared_by_value_and_type(shop: Shop) -> None:
    assert ask(shop, "sql", '{"x": 1}') == "enqueued"
    with shop.begin() as session:
        assert shop.harness.enqueue(session, shop.echo.s(x=1), job_id="python").is_new
    for job_id in ("sql", "python"):
        assert ask(shop, job_id, '{"x":  1}') == "waiting"
        assert refusal(shop, job_id, '{"x": 1.0}') == "23505"
        with shop.begin() as session, pytest.raises(ConflictingJob):
            shop.harness.enqueue(session, shop.echo.s(x=1.0), job_id=job_id)


@pytest.mark.parametrize("odd", ['{"x": "\\u0000"}', '{"x": 1e15}', '{"x": "\\ud83d"}', '{"x": "__type__"}'])
def test_what_sql_cannot_compare_is_never_called_done(shop: Shop, odd: str) -> None:
    known(shop, "a", FenceState.DONE, json.loads(odd))
    assert refusal(shop, "a", odd) == "0A000"
    assert (ask(shop, "new", odd), ask(shop, "new", odd)) == ("enqueued", "waiting")
    assert refusal(shop, "new", "{}") == "23505"


def value(draw: random.Random, levels: int = 3) -> Any:
    kind = draw.randrange(8 if levels else 6)
    if kind < 2:
        return draw.choice([None, True, False, draw.choice(NUMBERS), draw.uniform(-1e6, 1e6), draw.random() * 1e-8])
    if kind == 6:
        return [value(draw, levels - 1) for _ in range(draw.randrange(4))]
    if kind == 7:
        return {text(draw): value(draw, levels - 1) for _ in range(draw.randrange(4))}
    return text(draw)


def text(draw: random.Random) -> str:
    return "".join(draw.choices(LETTERS, k=draw.randrange(6)))


def test_the_digest_is_that_of_python(shop: Shop) -> None:
    draw = random.Random(7)
    cases = [([value(draw)], {text(draw): value(draw) for _ in range(2)}) for _ in range(400)]
    written = [
        [json.dumps(part, ensure_ascii=draw.random() < 0.5, indent=draw.choice([None, 2])) for part in case]
        for case in cases
    ]
    found = shop.state.sql(
        "SELECT encode(core.arguments_digest(CAST(c ->> 0 AS json), CAST(c ->> 1 AS json)), 'hex') AS said"
        " FROM json_array_elements(CAST(:cases AS json)) WITH ORDINALITY AS e(c, n) ORDER BY n",
        cases=json.dumps(written),
    )
    wrong = [case for case, row in zip(cases, found, strict=True) if row.said != digest(*case).hex()]
    assert wrong == []
    # A fraction is written with other digits, or not at all; never with digits that would be taken for another's.
    for literal in (
        "1e15",
        "1e400",
        "1e-400",
        "9007199254740993.0",
        "[" * 60 + "]" * 60,
        '{"a":' * 60 + "1" + "}" * 60,
    ):
        [(said,)] = shop.state.sql(DIGEST, args=f"[{literal}]", kwargs="{}")
        assert said is None, literal
