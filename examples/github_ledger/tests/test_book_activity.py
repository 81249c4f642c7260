"""The job in the test's own transaction: no broker, no worker, nothing to clean up."""

from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from examples.github_ledger import app as ledger
from examples.github_ledger.app import book_activity, receive
from examples.github_ledger.ledger import Account, Entry, open_account
from harness.testing import Completed, Dead, Deferred, Duplicate, Jobs, Reason, delays, steady_jitter

REPOSITORY = "octo-org/octo-repo"
PAYLOAD = {"action": "opened", "repository": {"full_name": REPOSITORY}, "sender": {"login": "octocat"}}


@pytest.fixture
def account(harness_session: Session) -> Account:
    open_account(harness_session, REPOSITORY)
    return harness_session.get_one(Account, REPOSITORY)


def entries(session: Session) -> int:
    return session.scalar(select(func.count()).select_from(Entry)) or 0


def test_a_delivery_is_booked(harness_jobs: Jobs, harness_session: Session, account: Account) -> None:
    outcome = harness_jobs.run(book_activity, job_id="delivery-1", event="issues", payload=PAYLOAD)
    assert outcome == Completed()
    assert account.activities == 1
    entry = harness_session.scalars(select(Entry)).one()
    assert (entry.delivery_id, entry.event, entry.action, entry.actor) == ("delivery-1", "issues", "opened", "octocat")


def test_the_same_delivery_again_is_a_duplicate(harness_jobs: Jobs, harness_session: Session, account: Account) -> None:
    for expected in (Completed(), Duplicate(), Duplicate()):
        outcome = harness_jobs.run(book_activity, job_id="delivery-1", event="issues", payload=PAYLOAD)
        assert outcome == expected
    assert (entries(harness_session), account.activities) == (1, 1)


@pytest.mark.parametrize(
    ("payload", "names"),
    [
        ({}, "repository"),
        ({"repository": {"full_name": REPOSITORY}, "sender": {}}, "login"),
        ({"repository": REPOSITORY, "sender": {"login": "octocat"}}, "repository"),
    ],
)
def test_a_payload_that_does_not_fit_is_poison(harness_jobs: Jobs, payload: dict[str, Any], names: str) -> None:
    outcome = harness_jobs.run(book_activity, job_id="delivery-1", event="issues", payload=payload)
    assert isinstance(outcome, Dead)
    letter = harness_jobs.assert_dead(book_activity, reason="invalid_payload", attempts=1)
    assert names in letter.error_message
    assert letter.payload["kwargs"]["payload"] == payload


def test_without_an_account_it_waits_for_a_person(harness_jobs: Jobs, harness_session: Session) -> None:
    outcome = harness_jobs.run(book_activity, job_id="delivery-1", event="issues", payload=PAYLOAD)
    assert isinstance(outcome, Dead)
    harness_jobs.assert_dead(book_activity, job_id="delivery-1", reason=Reason.permanent, error="no account for")

    open_account(harness_session, REPOSITORY)
    [ran] = harness_jobs.replay(job_id="delivery-1")
    assert ran.outcome == Completed()
    harness_jobs.assert_done(book_activity, job_id="delivery-1")
    assert entries(harness_session) == 1


def test_a_provider_that_is_away_for_a_while(
    harness_jobs: Jobs, harness_session: Session, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = ledger.book
    calls = []

    def flaky(session: Session, delivery_id: str, event: str, payload: Any) -> None:
        book(session, delivery_id, event, payload)
        session.flush()
        calls.append(entries(session))
        if len(calls) < 3:
            raise ConnectionError("the provider does not answer")

    monkeypatch.setattr(ledger, "book", flaky)
    with steady_jitter(0):
        outcome = harness_jobs.run(book_activity, job_id="delivery-1", event="issues", payload=PAYLOAD)
        assert isinstance(outcome, Deferred)
        harness_jobs.assert_deferred(book_activity, delay=30, attempts=1, error=ConnectionError)
        assert entries(harness_session) == 0, "the work of a failed try is rolled back"

        assert harness_jobs.advance(29) == []
        [second] = harness_jobs.advance(1)
        assert isinstance(second.outcome, Deferred)
        harness_jobs.assert_deferred(book_activity, delay=60, attempts=2)
    [third] = harness_jobs.drain()
    assert third.outcome == Completed(attempt=3)
    assert calls == [1, 1, 1]
    assert account.activities == 1


def test_a_provider_that_never_comes_back(
    harness_jobs: Jobs, harness_session: Session, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: Any) -> None:
        raise ConnectionError("the provider does not answer")

    monkeypatch.setattr(ledger, "book", away)
    receive("delivery-1", "issues", PAYLOAD)
    *tries, last = [ran.outcome for ran in harness_jobs.drain()]
    assert [type(one) for one in tries] == [Deferred] * 4
    assert isinstance(last, Dead)
    letter = harness_jobs.assert_dead(book_activity, reason="exhausted", attempts=5, error="does not answer")
    assert [failure["attempt"] for failure in letter.failures] == [1, 2, 3, 4, 5]
    assert entries(harness_session) == 0


def test_the_endpoint_sends_a_job(harness_jobs: Jobs) -> None:
    receive("delivery-1", "issues", PAYLOAD)
    sent = harness_jobs.assert_enqueued(book_activity, kwargs={"event": "issues"}, job_id="delivery-1", times=1)
    assert sent.queue == "github_ledger"
    assert sent.kwargs["payload"] == PAYLOAD


def test_how_long_a_failing_delivery_waits() -> None:
    with steady_jitter(0):
        assert delays(book_activity) == [30, 60, 120, 240]
    with steady_jitter(1):
        assert delays(book_activity) == [60, 120, 240, 480]
    assert delays(book_activity, OperationalError("SELECT 1", {}, Exception("away"))) != []
