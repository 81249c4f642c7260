"""How a person, beat and a test meet jobs with external effects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from sqlalchemy import text
from sqlalchemy.orm import Session

from harness import Harness, Job, JobTask, OutcomeUnknown
from harness.core.errors import ConfigError
from harness.core.ids import idempotency_key
from harness.core.outcome import Completed, Dead
from harness.core.reason import Reason
from harness.replay import sweep
from harness.store.processed_jobs import FenceState, Key
from harness.testing import Jobs
from harness.worker.request import ExternalRequest, JobRequest
from tests.cli.conftest import Shell, place, shell
from tests.letters import Place, arrival, decode, job

__all__ = ["place", "shell"]


@pytest.fixture
def harness(database: str) -> Iterator[Harness]:
    app = Celery("outside", broker="memory://", set_as_current=False)
    made = Harness(app, database_url=database, sentry=False)
    yield made
    made.close()
    app.close()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"effects": "external"}, "time_limit=None"),
        ({"effects": "external", "time_limit": 0}, "time_limit=0"),
        ({"effects": "external", "time_limit": float("inf")}, "time_limit=inf"),
        ({"effects": "outside"}, "'outside' is neither"),
        ({"effects": "external", "time_limit": 30, "claim_margin": 0}, "claim_margin=0"),
        ({"unknown": (OSError,)}, "unknown= is for jobs"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(harness: Harness, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):

        @harness.job(name="wrong", shared=False, **options)
        def wrong() -> None: ...


def test_a_class_may_say_it_too(harness: Harness) -> None:
    class Charges(JobTask):
        abstract = True
        effects = "external"
        time_limit = 20
        unknown = TimeoutError

    @harness.app.task(base=Charges, name="charge", shared=False)
    def charge(session: Session) -> None: ...

    @harness.job(name="plain", shared=False)
    def plain(session: Session) -> None: ...

    external = harness.jobs()["charge"].external
    assert external is not None
    assert (external.limit, external.margin, external.unknown) == (20.0, 30.0, (TimeoutError,))
    assert harness.jobs()["plain"].external is None
    assert charge.Request == f"{ExternalRequest.__module__}:{ExternalRequest.__name__}"
    assert plain.Request == f"{JobRequest.__module__}:{JobRequest.__name__}"


def test_no_machine_replays_an_unknown_outcome(place: Place) -> None:
    first, second = place.dead("a", reason=Reason.outcome_unknown), place.dead("b")
    counts = sweep(place.database, place.store, job(lambda *_: True), "beat", place.events, decode)
    assert (counts["replayed"], counts["surfaced"]) == (1, 1)
    assert "no machine" in str(place.letter(first).surfaced)
    assert place.letter(second).status == "replayed"
    assert place.state("a") is FenceState.DEAD


def test_a_filter_does_not_mean_an_unknown_outcome(place: Place, shell: Shell) -> None:
    unknown, other = place.dead("a", reason=Reason.outcome_unknown), place.dead("b")
    said = shell("dead-letters", "replay", "--task", "pay", "--dry-run")
    assert f"would replay 1 letter: {other};" in said.stdout
    assert "1 letter left out: outcome_unknown and conflict must be named" in said.stderr
    assert shell.json("dead-letters", "replay", "--task", "pay", "--yes")["replayed"] == 1
    assert place.state("a") is FenceState.DEAD
    named = shell.json("dead-letters", "replay", "--reason", "outcome_unknown", "--dry-run")
    assert named["ids"] == [unknown]
    assert shell.json("dead-letters", "discard", "--task", "pay", "--dry-run", "--reason", "x")["ids"] == [unknown]
    assert shell.json("dead-letters", "replay", str(unknown))["replayed"] == 1
    assert place.state("a") is FenceState.WAITING


def test_the_letter_says_what_to_look_for(place: Place, shell: Shell) -> None:
    unknown, other = place.dead("a", reason=Reason.outcome_unknown), place.dead("b")
    shown = shell("dead-letters", "show", unknown).stdout
    assert idempotency_key("billing/pay", "a") in shown
    assert "It is there: discard" in shown
    assert "idempotency" not in shell("dead-letters", "show", other).stdout


def test_the_inbox_shows_what_is_claimed(place: Place, shell: Shell) -> None:
    with place.database.begin() as session:
        place.store.fence.take(session, Key("a", "billing/pay"), FenceState.CLAIMED, relayed=False)
        place.store.inbox.add(session, arrival("a"))
        place.store.inbox.mark_claimed(session, Key("a", "billing/pay"), 10**17, seconds_left=60)
        place.store.inbox.add(session, arrival("b"), delay=30)
    [waits, claimed] = shell.json("inbox")
    assert (waits["claimed"], claimed["claimed"], claimed["job_id"]) == (False, True, "a")
    assert "claimed, until " in shell("inbox").stdout


def test_the_pytest_plugin_runs_the_whole_life(harness: Harness) -> None:
    seen: list[Any] = []

    @harness.job(name="charge", shared=False, effects="external", time_limit=20)
    def charge(session: Session, job: Job, how: str = "") -> str:
        seen.append((jobs.rows()[0].state, job.idempotency_key))
        session.execute(text("CREATE TABLE noted ()"))
        if how == "unknown" and len(seen) == 1:
            raise OutcomeUnknown("no answer")
        return "paid"

    engine = harness.database.engine
    with engine.connect() as connection, Jobs(harness, connection) as jobs:
        outcome = jobs.run(charge, how="unknown", job_id="order-1")
        assert isinstance(outcome, Dead)
        jobs.assert_dead(charge, reason=Reason.outcome_unknown)
        [ran] = jobs.replay(charge)
        assert ran.outcome == Completed("paid", 1)
        jobs.assert_done(charge)
        assert seen == [("claimed", idempotency_key("outside/charge", "order-1"))] * 2
        connection.rollback()


def test_without_a_broker_it_is_one_transaction(harness: Harness) -> None:
    @harness.job(name="charge", shared=False, effects="external", time_limit=20)
    def charge(session: Session, job: Job) -> str:
        return job.idempotency_key

    assert charge.apply(task_id="order-1").get() == idempotency_key("outside/charge", "order-1")
    assert charge.apply(task_id="order-1").get() is None


def test_a_key_fits_into_a_header() -> None:
    keys = {idempotency_key("shop/charge", job_id) for job_id in ("order-1", "ordér-1\r\n", "x" * 10_000)}
    assert all(len(key) == 36 and key.isascii() and key.isprintable() for key in keys)
    assert len(keys) == 3
    assert idempotency_key("shop/charge", "order-1") != idempotency_key("shop/ship", "order-1")
    assert idempotency_key("shop/charge", "order-1") == "970f5513-0b0f-5d3d-9ab6-4ecffc13ff1b", "it never changes"
