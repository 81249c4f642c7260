"""The job of the order run, for its workers: `-I tests.order.jobs`. It notes what its run sees when it begins.

With ORDER_FAULT in the environment the product is broken on purpose: `relay` sends whatever is due, `copy` no copy asks
whether it is its turn, `both`.
"""

import os
import random
import time
from typing import Any

import psycopg2
import tenacity
from sqlalchemy import text
from sqlalchemy.orm import Session

from harness import Job, Permanent, Policy, backoff
from harness.store.order import Order, Turn
from tests.worker.app import harness

_policy = Policy(stop=tenacity.stop_after_attempt(60), wait=backoff(base=0.05, cap=0.5), reason="tests do not wait")
_outside: dict[int, Any] = {}


def outside() -> Any:
    """A connection beside the work transaction: a run that fails, or is killed, has been seen all the same."""
    if os.getpid() not in _outside:
        connection = _outside[os.getpid()] = psycopg2.connect(os.environ["HARNESS_DATABASE_URL"])
        connection.autocommit = True
    return _outside[os.getpid()]


@harness.job(name="numbered", policy=_policy)
def numbered(session: Session, job: Job, key: str, number: int, fails: float = 0.0, pause: float = 0.0) -> None:
    with outside().cursor() as cursor:
        cursor.execute(
            "INSERT INTO order_runs (key, number, seen) SELECT %(key)s, %(number)s, "
            "(SELECT count(DISTINCT number) FROM order_effects WHERE key = %(key)s AND number < %(number)s)",
            {"key": key, "number": number},
        )
    session.execute(
        text("INSERT INTO order_effects (key, number) VALUES (:key, :number)"), {"key": key, "number": number}
    )
    time.sleep(pause)
    if random.random() < fails:
        raise ConnectionError("the other side is away")


@harness.job(name="dies_and_blocks", policy=_policy, on_dead="block")
def dies_and_blocks(session: Session, job: Job, key: str) -> None:
    raise Permanent("somebody has to look at this account")


fault = os.environ.get("ORDER_FAULT", "")
if fault in ("relay", "both"):
    Order.is_first = lambda self, row, blocks: "true"  # type: ignore[method-assign]
    Order.is_free = lambda self, row: "true"  # type: ignore[method-assign]
if fault in ("copy", "both"):
    Order.take_turn = lambda self, session, key, generation: Turn.ours  # type: ignore[method-assign]
