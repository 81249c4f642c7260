"""Slips in a call of `enqueue`: the error names what was written and what was most likely meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness import InvalidPayload, UsageError
from tests.enqueue.conftest import Shop


@pytest.fixture
def shop(database: str) -> Iterator[Shop]:
    made = Shop(database)
    yield made
    assert made.rows() == [], "nothing is written"
    made.engine.dispose()
    made.harness.close()


def test_what_looks_like_an_option(shop: Shop) -> None:
    loose: Any = shop.harness.enqueue
    with shop.begin() as session:
        with pytest.raises(UsageError, match=r"^jobid=: no option of an enqueue; is job_id= meant"):
            loose(session, shop.credit.s(points=1), jobid="x")
        with pytest.raises(UsageError, match=r"^points=, 7: no option of an enqueue\. A signature has"):
            loose(session, shop.credit.s(points=1), 7, points=1)
        with pytest.raises(UsageError, match=r"jobid= is no parameter of credit .* is job_id= meant"):
            loose(session, shop.credit, points=1, jobid="x")
        with pytest.raises(UsageError, match=r"orderingkey= .* is ordering_key= meant"):
            loose(session, shop.credit, points=1, orderingkey="x")
        with pytest.raises(InvalidPayload, match="colour"):
            loose(session, shop.credit, points=1, colour="x")


def test_the_name_of_a_job_is_no_job(shop: Shop) -> None:
    loose: Any = shop.harness.enqueue
    with shop.begin() as session:
        with pytest.raises(UsageError, match=r"^'credit' is the name of a job\. Give the job itself"):
            loose(session, "credit", 1)
        with pytest.raises(UsageError, match=r"^'nobody' is a text\. Give the job itself"):
            loose(session, "nobody", 1)
