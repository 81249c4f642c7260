"""Nobody's backlog starves another, no more is in flight than allowed, and no poll reads more than it needs."""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import Any

import pytest
from sqlalchemy import text

from harness.core.outcome import Completed
from harness.store.dispatch import Caps
from tests.order.lane import Lane

MANY = """
    INSERT INTO core.inbox (service, consumer, task, job_id, body, headers, properties, queue, tenant, priority,
        ordering_key, sequence)
    SELECT 's', :consumer, 't', :mark || g, 'x', '{}', '{}', 'q', :tenant, :priority, :key,
        CASE WHEN CAST(:key AS text) IS NOT NULL THEN nextval('core.inbox_generation') END
    FROM generate_series(1, :count) g
"""


def many(lane: Lane, mark: str, count: int, **more: Any) -> None:
    given = {"consumer": "s/t", "tenant": None, "priority": 0, "key": None} | more
    lane.all(MANY, mark=mark, count=count, **given)


def marks(names: list[str]) -> Counter[str]:
    return Counter(name.rstrip("0123456789") for name in names)


def test_every_tenant_and_every_job_has_its_share(lane: Lane) -> None:
    many(lane, "big", 1000, tenant="big")
    many(lane, "small", 3, tenant="small")
    many(lane, "none", 1000)
    many(lane, "other job", 40, consumer="s/other")
    sent = marks(lane.relay(batch=100))
    assert sent == {"big": 25, "small": 3, "none": 25, "other job": 25}
    assert sum(sent.values()) < 100, "what one lane had not is left for the next batch"
    sent = marks(lane.relay(batch=100))
    assert sent["big"] >= 33


def test_more_tenants_than_a_batch_are_served_in_turn(lane: Lane) -> None:
    for number in range(30):
        many(lane, f"tenant{number:02}-", 5, tenant=f"tenant{number:02}")
    relay = lane.make_relay(batch=10)
    served: Counter[str] = Counter()
    for _ in range(3):
        lane._new.clear()
        relay.step()
        served += Counter(name.split("-")[0] for name in lane._new)
    assert len(served) == 30
    assert set(served.values()) == {1}


def test_urgent_ones_first_whoever_they_belong_to(lane: Lane) -> None:
    many(lane, "low", 200, tenant="a")
    many(lane, "high", 8, tenant="b", priority=7)
    assert marks(lane.relay(batch=10)) == {"high": 8, "low": 2}


def test_no_more_than_so_many_in_flight_with_many_relays(lane: Lane) -> None:
    many(lane, "job", 200)
    many(lane, "tenant", 50, tenant="one")
    many(lane, "free", 50, consumer="s/free")
    caps = Caps({"s/t": 7})
    relays = [lane.make_relay(caps=lambda: caps) for _ in range(4)]
    in_flight = "SELECT count(*) FROM core.inbox WHERE consumer = 's/t' AND leased_until > now()"
    most = []

    def work(relay: Any) -> None:
        for _ in range(12):
            relay.step()
            most.append(lane.one(in_flight))

    threads = [threading.Thread(target=work, args=(relay,)) for relay in relays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 7
    assert lane.one("SELECT count(*) FROM core.inbox WHERE consumer = 's/free' AND leased_until > now()") == 50
    for name in [name for name in lane.sent if not name.startswith("free")][:3]:
        assert isinstance(lane.run(name), Completed)
    assert len(lane.relay(caps=caps)) == 3
    assert lane.one(in_flight) == 7


def test_the_setting_is_for_every_job(lane: Lane) -> None:
    for consumer in ("s/a", "s/b"):
        many(lane, consumer[2:], 20, consumer=consumer)
    assert marks(lane.relay(caps=Caps({"s/a": 2}, default=5))) == {"a": 2, "b": 5}


def test_a_job_that_waits_for_its_turn_is_not_in_flight(lane: Lane) -> None:
    lane.put("a", "b", "c", "d")
    caps = Caps({"s/t": 2})
    for _ in range(4):
        lane.relay(caps=caps)
    lane.put("free", key="other")
    assert lane.relay(caps=caps) == ["free"]


def test_a_backlog_of_one_key_is_looked_at_once(lane: Lane) -> None:
    many(lane, "hot", 2000, key="hot")
    many(lane, "free", 3)
    relay = lane.make_relay(batch=50)
    steps = 0
    while relay.step():
        steps += 1
        assert steps < 60
    assert sorted(marks(lane._new).items()) == [("free", 3), ("hot", 1)]
    assert lane.one("SELECT count(*) FROM core.inbox WHERE leased_until IS NULL") == 0
    assert relay.cursor.looked == 0


@pytest.mark.parametrize("keys", [1, 4000])
def test_a_poll_reads_no_more_than_it_may_lease(lane: Lane, keys: int) -> None:
    """By what PostgreSQL says of its own reads; figures for a million rows are in the documentation."""
    lane.all(
        MANY.replace(":key,", f"'key' || (g % {keys}),").replace("CAST(:key AS text)", "'k'"),
        mark="j", count=20_000, consumer="s/t", tenant=None, priority=0,
    )  # fmt: skip
    with lane.database.engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("ANALYZE core.inbox")
    dispatch = lane.store.inbox.dispatch
    *set_up, statement = dispatch._sql[True].text.split(";")
    classes = [{"ord": n, "class": n, "consumer": "", "tenant": ""} for n in range(10)]
    values = {"classes": json.dumps(classes), "caps": "[]", "default": None, "capped": False, "service": "s"}
    values |= {"limit": 10, "look": 10, "lanes": 1000, "lease": 1, "longest": 1}
    with lane.database.begin() as session:
        for one in set_up:
            session.execute(text(one))
        [plan] = session.scalars(text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {statement}"), values).all()
        session.rollback()
    top = plan[0]["Plan"]
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 1500, top
    assert "Seq Scan" not in json.dumps(plan)
