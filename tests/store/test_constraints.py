"""The database's own guards: what it refuses, whoever asks."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy.exc import DBAPIError

from harness.core.reason import Reason
from harness.store.database import sqlstate
from harness.store.inbox import Arrival
from harness.store.schema import FENCE_STATES
from tests.letters import Place, arrival

CHECK, UNIQUE, APPEND_ONLY = "23514", "23505", "23001"


def refused(place: Place, code: str, statement: str, **values: object) -> str:
    with pytest.raises(DBAPIError) as caught:
        place.run(statement, **values)
    assert sqlstate(caught.value) == code
    return str(caught.value.orig)


@pytest.mark.parametrize("reason", ["NULL", "''", "'  '", "E'\\n\\t'"])
def test_discard_without_a_reason(place: Place, reason: str) -> None:
    place.dead("a")
    said = refused(
        place,
        CHECK,
        "UPDATE core.dead_letters SET status = 'discarded', reviewer = 'ann', resolved_at = now(),"
        f" discard_reason = {reason}",
    )
    assert "dead_letters_discard_check" in said


@pytest.mark.parametrize("missing", ["reviewer = NULL, resolved_at = now()", "reviewer = 'ann', resolved_at = NULL"])
def test_discard_without_a_reviewer_or_an_end(place: Place, missing: str) -> None:
    place.dead("a")
    refused(place, CHECK, f"UPDATE core.dead_letters SET status = 'discarded', discard_reason = 'x', {missing}")


def test_a_pending_letter_is_not_resolved(place: Place) -> None:
    place.dead("a")
    assert "resolved" in refused(place, CHECK, "UPDATE core.dead_letters SET resolved_at = now()")


@pytest.mark.parametrize("value", ["'lost'", "''", "'Exhausted'"])
def test_reason_status_and_state_are_closed_sets(place: Place, value: str) -> None:
    place.dead("a")
    refused(place, CHECK, f"UPDATE core.dead_letters SET reason = {value}")
    refused(place, CHECK, f"UPDATE core.dead_letters SET status = {value}")
    refused(place, CHECK, f"UPDATE core.processed_jobs SET state = {value}")


def test_every_reason_and_state_of_the_code_is_taken(place: Place) -> None:
    for reason in Reason:
        place.dead(f"r {reason}", reason=reason)
    for state in FENCE_STATES:
        place.run("UPDATE core.processed_jobs SET state = :state", state=state)


def test_one_open_letter_per_job(place: Place) -> None:
    first = place.dead("a")
    columns = (
        "service, consumer, task, job_id, body, headers, properties, queue, reason, attempts, error_type,"
        " error_message, traceback, fingerprint, failures"
    )
    copy = f"INSERT INTO core.dead_letters ({columns}) SELECT {columns} FROM core.dead_letters WHERE id = :id"
    assert "dead_letters_open_key" in refused(place, UNIQUE, copy, id=first)
    place.run("UPDATE core.dead_letters SET status = 'replayed'")
    refused(place, UNIQUE, copy, id=first)
    place.run("UPDATE core.dead_letters SET resolved_at = now()")
    place.run(copy, id=first)
    assert place.dead("a") == place.one("SELECT max(id) FROM core.dead_letters")
    assert place.one("SELECT count(*) FROM core.dead_letters") == 2


def test_two_letters_of_one_job_at_once_become_one(place: Place) -> None:
    numbers: list[int] = []
    threads = [threading.Thread(target=lambda: numbers.append(place.dead("a"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(numbers)) == 1
    assert place.one("SELECT count(*) FROM core.dead_letters") == 1


def test_one_fence_and_one_inbox_row_per_job_and_consumer(place: Place) -> None:
    place.wait("a")
    place.wait("a", task="other")
    place.wait("a", service="shop")
    copy = "INSERT INTO core.processed_jobs (job_id, consumer, state) VALUES ('a', 'billing/pay', 'done')"
    refused(place, UNIQUE, copy)
    columns = "service, consumer, task, job_id, body, headers, properties, queue"
    refused(place, UNIQUE, f"INSERT INTO core.inbox ({columns}) SELECT {columns} FROM core.inbox")
    with place.database.begin() as session:
        assert not place.store.inbox.add(session, arrival("a"), fresh=True)


@pytest.mark.parametrize("column", ["attempts", "deliveries", "dispatches"])
def test_counts_do_not_go_below_zero(place: Place, column: str) -> None:
    place.wait("a")
    refused(place, CHECK, f"UPDATE core.inbox SET {column} = -1")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE core.audit_log SET actor = 'nobody'",
        "UPDATE core.audit_log SET actor = actor WHERE false",
        "DELETE FROM core.audit_log",
        "DELETE FROM core.audit_log WHERE false",
        "TRUNCATE core.audit_log",
        "TRUNCATE core.audit_log, core.inbox CASCADE",
        "INSERT INTO core.audit_log (id, service, actor, action, letter_id, consumer, job_id) OVERRIDING SYSTEM VALUE"
        " SELECT id, service, 'x', action, letter_id, consumer, job_id FROM core.audit_log"
        " ON CONFLICT (id) DO UPDATE SET actor = 'x'",
    ],
)
def test_the_audit_log_is_append_only(place: Place, statement: str) -> None:
    letter_id = place.dead("a")
    with place.database.begin() as session:
        place.store.audit.write(
            session, service="billing", actor="ann", action="looked", letter_id=letter_id, consumer="c", job_id="a"
        )
    assert "append-only" in refused(place, APPEND_ONLY, statement)
    assert place.audit(letter_id) == [("looked", "ann", None)]


def test_the_audit_log_outlives_its_letter(place: Place) -> None:
    letter_id = place.dead("a")
    with place.database.begin() as session:
        place.store.audit.write(
            session, service="billing", actor="ann", action="looked", letter_id=letter_id, consumer="c", job_id="a"
        )
    place.run("DELETE FROM core.dead_letters")
    assert len(place.audit(letter_id)) == 1


def test_bytes_come_back_as_they_went_in(place: Place) -> None:
    """In the inbox and in a letter: bodies that jsonb could not keep, headers of types that JSON lacks."""
    from datetime import UTC, datetime
    from decimal import Decimal
    from uuid import UUID

    from harness.core.message import Message

    headers = {
        "text": "\u0000 \ud800 \U0001f600",
        "raw": b"\x00\xff",
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "money": Decimal("1.10"),
        "id": UUID(int=7),
        "numbers": [1, 2**70, 1.5, None, True],
        "$bytes": "no bytes",
        "nested": {"$dict": {"a": 1}},
        3: "a number for a key",
    }
    sent = Message(b'{"a": 1, "a": NaN, "b": "\x00\xff"}', None, "binary", headers, {"priority": 9}, "queue é")
    where: Arrival = arrival("a", message=sent)
    with place.database.begin() as session:
        place.store.inbox.add(session, where)
    letter_id = place.dead("a", message=sent)
    assert place.waiting("a").message == sent
    assert place.letter(letter_id).message == sent
    assert place.letter(letter_id).arrival.message == sent
