"""The gated sweep: replayed, untouched, surfaced; and only once."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from harness.core.events import Events
from harness.core.message import Message
from harness.replay import sweep
from harness.store.database import Database, DatabaseAway
from harness.store.processed_jobs import FenceState
from tests.letters import SERVICE, Place, arrival, decode, job, message

NONE = {"replayed": 0, "resolved": 0, "not_yet": 0, "surfaced": 0, "skipped": 0, "failed": 0}


def run(place: Place, jobs: Mapping[str, Any], **more: Any) -> dict[str, int]:
    """The counts that are not 0."""
    database = more.get("database", place.database)
    counts = sweep(database, place.store, jobs, "beat", place.events, more.get("decode", decode))
    assert counts.keys() == NONE.keys()
    return {name: count for name, count in counts.items() if count}


def always(session: Session, arguments: Mapping[str, Any]) -> bool:
    return True


def never(session: Session, arguments: Mapping[str, Any]) -> bool:
    return False


def test_the_gate_decides_by_arguments_and_database(place: Place) -> None:
    place.run("CREATE TABLE open_accounts (account int)")
    first, second = place.dead("a"), place.dead("b", message=message("b", args=["8"]))
    seen: list[Mapping[str, Any]] = []

    def gate(session: Session, arguments: Mapping[str, Any]) -> bool:
        seen.append(arguments)
        found = session.execute(text("SELECT 1 FROM open_accounts WHERE account = :account"), dict(arguments))
        return found.first() is not None

    before = place.letter(first), place.letter(second)
    assert run(place, job(gate)) == {"not_yet": 2}
    assert seen == [{"account": 7, "points": 1}, {"account": 8, "points": 1}]
    assert (place.letter(first), place.letter(second)) == before
    assert place.audit(first) == place.audit(second) == []

    place.run("INSERT INTO open_accounts VALUES (8)")
    assert run(place, job(gate)) == {"replayed": 1, "not_yet": 1}
    assert place.letter(first) == before[0]
    assert place.state("a") is FenceState.DEAD
    assert place.waiting("b").letter_id == second
    assert (place.waiting("b").attempts, place.waiting("b").message.queue) == (0, "payments")
    assert place.audit(second) == [("replayed", "beat", "the gate says that it can succeed now")]
    assert run(place, job(gate)) == {"not_yet": 1}


def test_only_jobs_with_a_gate_of_the_own_service_and_consumer(place: Place) -> None:
    letters = [
        place.dead("a", task="other"),
        place.dead("b", service="shop"),
        place.dead("c", task="pay2"),
    ]
    assert run(place, job(None) | job(None, task="other")) == {}
    assert run(place, job(always)) == {}
    for letter_id, service in zip(letters, (SERVICE, "shop", SERVICE), strict=True):
        assert place.letter(letter_id, service).status == "pending_review"


def test_only_pending_letters(place: Place) -> None:
    place.run("UPDATE core.dead_letters SET status = 'replayed' WHERE id = :id", id=place.dead("a"))
    place.run(
        "UPDATE core.dead_letters SET resolved_at = now(), status = 'replayed' WHERE id = :id", id=place.dead("b")
    )
    assert run(place, job(always)) == {}


def test_a_job_that_has_succeeded_is_resolved(place: Place) -> None:
    letter_id = place.dead("a")
    place.done("a")
    assert run(place, job(always)) == {"resolved": 1}
    assert place.letter(letter_id).resolved_at is not None
    assert place.waiting("a") is None


def test_too_many_replays_are_surfaced_once(place: Place) -> None:
    letter_id = place.dead("a")
    for _ in range(2):
        assert run(place, job(always, max_replays=2)) == {"replayed": 1}
        place.run("DELETE FROM core.inbox")
        place.dead("a")
    assert run(place, job(always, max_replays=2)) == {"surfaced": 1}
    assert "2 times" in place.letter(letter_id).surfaced
    assert place.letter(letter_id).status == "pending_review"
    assert place.audit(letter_id)[-1][:2] == ("surfaced", "beat")
    assert run(place, job(always, max_replays=2)) == {}
    assert [action for action, *_ in place.audit(letter_id)] == ["replayed", "replayed", "surfaced"]


def test_too_old_is_surfaced_by_the_databases_clock(place: Place) -> None:
    young, old = place.dead("a"), place.dead("b")
    place.run("UPDATE core.dead_letters SET created_at = now() - interval '3599 s' WHERE id = :id", id=young)
    place.run("UPDATE core.dead_letters SET created_at = now() - interval '3601 s' WHERE id = :id", id=old)
    assert run(place, job(never, max_age=3600.0)) == {"not_yet": 1, "surfaced": 1}
    assert place.letter(young).surfaced is None
    assert "1:00:00" in place.letter(old).surfaced


def writes(session: Session, arguments: Mapping[str, Any]) -> bool:
    session.execute(text("INSERT INTO looked VALUES (1)"))
    return True


def raises(session: Session, arguments: Mapping[str, Any]) -> bool:
    raise RuntimeError("the gate is broken")


def swallows(session: Session, arguments: Mapping[str, Any]) -> bool:
    with pytest.raises(Exception, match="division"):
        session.execute(text("SELECT 1 / 0"))
    return True


def commits(session: Session, arguments: Mapping[str, Any]) -> bool:
    session.commit()
    return True


def commits_below(session: Session, arguments: Mapping[str, Any]) -> bool:
    session.connection().connection.dbapi_connection.commit()  # type: ignore[union-attr]
    session.execute(text("INSERT INTO looked VALUES (1)"))
    return True


def says_commit(session: Session, arguments: Mapping[str, Any]) -> bool:
    session.execute(text("COMMIT"))
    return True


@pytest.mark.parametrize("gate", [writes, raises, swallows, commits, commits_below, says_commit])
def test_a_faulty_gate_is_logged_and_changes_nothing(place: Place, gate: Any, caplog: pytest.LogCaptureFixture) -> None:
    place.run("CREATE TABLE looked (n int)")
    bad, good = place.dead("a"), place.dead("b", task="other")
    before = place.letter(bad)
    assert run(place, job(gate) | job(always, task="other")) == {"failed": 1, "replayed": 1}
    assert place.letter(bad) == before
    assert place.state("a") is FenceState.DEAD
    assert place.audit(bad) == []
    assert place.one("SELECT count(*) FROM looked") == 0
    assert place.letter(good).status == "replayed"
    assert f"letter {bad} of pay" in caplog.text


def test_a_message_that_does_not_fit_the_handler_is_left_alone(place: Place) -> None:
    place.dead("a", message=message("a", account="seven"))
    place.dead("b", message=Message(b"\xff\x00", "application/json", "utf-8", {}, {}, "payments"))
    assert run(place, job(always)) == {"skipped": 2}
    assert place.one("SELECT count(*) FROM core.inbox") == 0


def test_two_sweeps_at_once_drive_a_letter_once(place: Place) -> None:
    letters = [place.dead(f"j{n}") for n in range(20)]
    asked: list[int] = []
    start = threading.Barrier(4)
    totals: list[dict[str, int]] = []

    def gate(session: Session, arguments: Mapping[str, Any]) -> bool:
        asked.append(1)
        session.execute(text("SELECT pg_sleep(0.005)"))
        return True

    def beat() -> None:
        database = Database(place.url, pool_size=2)
        start.wait()
        totals.append(sweep(database, place.store, job(gate), "beat", Events(), decode))
        database.dispose()

    threads = [threading.Thread(target=beat) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(total["replayed"] for total in totals) == 20
    assert sum(total["failed"] for total in totals) == 0
    assert len(asked) == 20
    for letter_id in letters:
        assert place.letter(letter_id).replays == 1
        assert len(place.audit(letter_id)) == 1
    assert place.one("SELECT count(*) FROM core.inbox") == 20


def test_the_claim_holds_no_row_lock_while_the_gate_looks(place: Place) -> None:
    """A person may replay the letter meanwhile; the sweep finds it replayed, and does not do it again."""
    letter_id = place.dead("a")

    def gate(session: Session, arguments: Mapping[str, Any]) -> bool:
        place.run("SET LOCAL lock_timeout = '1s'; UPDATE core.dead_letters SET updated_at = now()")
        from harness.replay import replay

        replay(place.database, place.store, SERVICE, letter_id, "ann", place.events)
        return True

    assert run(place, job(gate)) == {"skipped": 1}
    assert [actor for _, actor, _ in place.audit(letter_id)] == ["ann"]
    assert place.letter(letter_id).replays == 1


def test_a_letter_that_failed_again_behind_the_gates_back_is_looked_at_anew(place: Place) -> None:
    letter_id = place.dead("a")

    def gate(session: Session, arguments: Mapping[str, Any]) -> bool:
        from harness.replay import replay

        replay(place.database, place.store, SERVICE, letter_id, "ann", place.events)
        place.run("DELETE FROM core.inbox")
        place.dead("a")
        return True

    assert run(place, job(gate)) == {"skipped": 1}
    assert place.letter(letter_id).replays == 1


def test_a_job_at_work_is_skipped_soon(place: Place) -> None:
    """Somebody holds the fence of a pending letter: the sweep goes on with the others."""
    place.dead("a")
    place.dead("b")
    with place.database.begin() as session:
        place.store.fence.look(session, arrival_key("a"), lock=True)
        assert run(place, job(always)) == {"skipped": 1, "replayed": 1}


def arrival_key(job_id: str) -> Any:
    from harness.store.processed_jobs import Key

    where = arrival(job_id)
    return Key(where.job_id, where.consumer)


def test_database_away_is_raised(place: Place) -> None:
    with pytest.raises(DatabaseAway):
        run(place, job(always), database=Database("postgresql://postgres@127.0.0.1:1/none"))


def test_a_connection_that_breaks_under_the_gate_is_no_fault_of_the_gate(place: Place) -> None:
    place.dead("a")

    def gate(session: Session, arguments: Mapping[str, Any]) -> bool:
        pid = session.execute(text("SELECT pg_backend_pid()")).scalar_one()
        place.run("SELECT pg_terminate_backend(:pid, 5000)", pid=pid)
        session.execute(text("SELECT 1"))
        return True

    with pytest.raises(DatabaseAway):
        run(place, job(gate))
    assert place.state("a") is FenceState.DEAD
