"""What prune deletes, and what it never does. Rows are made old by moving their times."""

import sys
import threading

import pytest

from harness.core.errors import ConfigError
from harness.core.events import Events, Pruned
from harness.prune import prune
from harness.replay import discard, replay
from harness.store.database import Database, DatabaseAway
from harness.store.processed_jobs import FenceState, Key
from tests.letters import SERVICE, Place, arrival

DAY = 86_400.0


def run(place: Place, **more: int) -> dict[str, int]:
    return prune(place.database, place.store, SERVICE, 7 * DAY, 90 * DAY, place.events, **more)


def age(place: Place, **days: float) -> None:
    """Move every fence of these jobs so many days into the past."""
    for job_id, number in days.items():
        place.run(
            "UPDATE core.processed_jobs SET processed_at = now() - :age * interval '1 day' WHERE job_id = :id",
            age=number,
            id=job_id,
        )


def fences(place: Place) -> set[str]:
    return {row.job_id for row in place.run("SELECT job_id FROM core.processed_jobs")}


def test_expired_fences_go_and_those_inside_the_window_stay(place: Place) -> None:
    for job_id in ("old", "older", "young"):
        place.done(job_id)
    age(place, old=7.001, older=400, young=6.999)
    assert run(place) == {"fences": 2, "letters": 0, "failed": 0}
    assert fences(place) == {"young"}
    assert place.told == [Pruned("processed_jobs", 2, SERVICE)]
    assert run(place) == {"fences": 0, "letters": 0, "failed": 0}
    assert len(place.told) == 1


def test_a_fence_with_an_inbox_row_or_an_open_letter_stays(place: Place) -> None:
    place.wait("waits")
    place.done("busy")
    with place.database.begin() as session:
        place.store.inbox.add(session, arrival("busy"))
    place.dead("pending")
    replayed = place.dead("replayed")
    place.run("UPDATE core.dead_letters SET status = 'replayed' WHERE id = :id", id=replayed)
    place.fence("claimed", FenceState.CLAIMED)
    discard(place.database, place.store, SERVICE, place.dead("discarded"), "ann", Events(), "no need")
    age(place, waits=99, busy=99, pending=99, replayed=99, claimed=99, discarded=99)
    assert run(place)["fences"] == 1
    assert fences(place) == {"waits", "busy", "pending", "replayed", "claimed"}


def test_a_fence_that_a_transaction_holds_stays_and_nobody_waits(place: Place) -> None:
    place.done("held")
    place.done("free")
    age(place, held=99, free=99)
    with place.database.begin() as session:
        place.store.fence.look(session, Key("held", f"{SERVICE}/pay"), lock=True)
        assert run(place)["fences"] == 1
    assert fences(place) == {"held"}


def test_a_job_that_is_replayed_while_prune_runs_keeps_its_fence(place: Place) -> None:
    """The letter is open as long as prune can see it, and the fence is young as soon as it is not."""
    letters = [place.dead(f"j{n}") for n in range(100)]
    place.run("UPDATE core.processed_jobs SET processed_at = now() - interval '99 days'")
    stop = threading.Event()

    def pruning() -> None:
        database = Database(place.url)
        while not stop.is_set():
            prune(database, place.store, SERVICE, 7 * DAY, 90 * DAY, Events())
        database.dispose()

    thread = threading.Thread(target=pruning)
    thread.start()
    for letter_id in letters:
        replay(place.database, place.store, SERVICE, letter_id, "ann", place.events)
    stop.set()
    thread.join()
    assert len(fences(place)) == 100


def test_only_the_own_service(place: Place) -> None:
    place.done("a")
    place.done("a", service="billing2")
    place.done("a", service="%")
    place.done("a", service="bill_ng")
    place.run("UPDATE core.processed_jobs SET processed_at = now() - interval '99 days'")
    foreign = place.dead("b", service="billing2")
    discard(place.database, place.store, "billing2", foreign, "ann", Events(), "no need")
    place.run("UPDATE core.dead_letters SET resolved_at = now() - interval '99 days'")
    assert run(place) == {"fences": 1, "letters": 0, "failed": 0}
    assert prune(place.database, place.store, "bill_ng", 7 * DAY, 90 * DAY, place.events)["fences"] == 1
    assert prune(place.database, place.store, "%", 7 * DAY, 90 * DAY, place.events)["fences"] == 1
    assert {row.consumer for row in place.run("SELECT consumer FROM core.processed_jobs")} == {"billing2/pay"}


def test_letters_go_when_closed_for_long_and_pending_ones_never(place: Place) -> None:
    numbers = {
        name: place.dead(name, tenant="t" if name == "resolved" else None)
        for name in ("pending", "replayed", "resolved", "discarded", "young")
    }
    place.run("UPDATE core.dead_letters SET created_at = now() - interval '999 days', updated_at = created_at")
    place.run("UPDATE core.dead_letters SET status = 'replayed' WHERE job_id IN ('replayed', 'resolved')")
    place.run("UPDATE core.dead_letters SET resolved_at = now() - interval '90.01 days' WHERE job_id = 'resolved'")
    place.run(
        "UPDATE core.dead_letters SET status = 'discarded', discard_reason = 'x', reviewer = 'ann',"
        " resolved_at = now() - CASE job_id WHEN 'young' THEN interval '89.99 days' ELSE interval '90.01 days' END"
        " WHERE job_id IN ('discarded', 'young')"
    )
    assert run(place) == {"fences": 0, "letters": 2, "failed": 0}
    left = {row.id for row in place.run("SELECT id FROM core.dead_letters")}
    assert left == {numbers["pending"], numbers["replayed"], numbers["young"]}
    assert place.told == [Pruned("dead_letters", 2, SERVICE)]


def test_batches_are_bounded_and_cover_the_whole_table(place: Place) -> None:
    place.run(
        "INSERT INTO core.processed_jobs (job_id, consumer, state, processed_at)"
        " SELECT 'j' || n, 'billing/' || n % 3, 'done', now() - n % 2 * interval '99 days'"
        " FROM generate_series(1, 5000) n"
    )
    steps: list[tuple[str, int]] = []
    counts = prune(
        place.database,
        place.store,
        SERVICE,
        7 * DAY,
        90 * DAY,
        place.events,
        batch_pages=4,
        progress=lambda *step: steps.append(step),
    )
    assert counts["fences"] == 2500
    assert place.one("SELECT count(*) FROM core.processed_jobs") == 2500
    totals = [count for _, count in steps]
    assert len(totals) > 5
    assert max(after - before for before, after in zip([0, *totals], totals, strict=False)) < 1000


def test_the_plan_reads_the_range_and_no_more(place: Place) -> None:
    place.run(
        "INSERT INTO core.processed_jobs (job_id, consumer, state) SELECT 'j' || n, 'billing/pay', 'done'"
        " FROM generate_series(1, 50000) n"
    )
    place.run("ANALYZE core.processed_jobs")
    place.run("SET enable_seqscan = on")
    statements: list[str] = []
    from sqlalchemy import event

    def note(connection: object, cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    event.listen(place.database.engine, "before_cursor_execute", note)
    run(place, batch_pages=64)
    [statement] = {s for s in statements if s.startswith("DELETE FROM core.processed_jobs")}
    values = {"first": "(64,0)", "last": "(128,0)", "whose": "billing/", "ttl": "7 days"}
    with place.database.engine.connect() as connection:
        plan = "\n".join(row[0] for row in connection.exec_driver_sql(f"EXPLAIN {statement}", values))
    assert "Tid Range Scan" in plan
    assert "Seq Scan on processed_jobs" not in plan


def refuse_deletes(place: Place, table: str, condition: str) -> None:
    place.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE 'this one is kept'; END $$;"
        f" CREATE TRIGGER refuse BEFORE DELETE ON core.{table} FOR EACH ROW WHEN ({condition})"
        " EXECUTE FUNCTION refuse()"
    )


def test_one_consumers_failure_does_not_stop_the_others(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    for task in ("a", "bad", "z"):
        for n in range(3):
            place.done(f"j{n}", task=task)
    place.run("UPDATE core.processed_jobs SET processed_at = now() - interval '99 days'")
    refuse_deletes(place, "processed_jobs", "OLD.consumer = 'billing/bad'")
    assert run(place) == {"fences": 6, "letters": 0, "failed": 1}
    assert {row.consumer for row in place.run("SELECT consumer FROM core.processed_jobs")} == {"billing/bad"}
    assert "the fences of billing/bad" in caplog.text
    assert "this one is kept" in caplog.text


def test_one_tenants_failure_does_not_stop_the_others(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    for tenant in ("a", "bad", None, "z"):
        discard(
            place.database, place.store, SERVICE, place.dead(f"of {tenant}", tenant=tenant), "ann", Events(), "no need"
        )
    place.run("UPDATE core.dead_letters SET resolved_at = now() - interval '99 days'")
    refuse_deletes(place, "dead_letters", "OLD.tenant = 'bad'")
    assert run(place) == {"fences": 0, "letters": 3, "failed": 1}
    assert [row.tenant for row in place.run("SELECT tenant FROM core.dead_letters")] == ["bad"]
    assert "tenant 'bad'" in caplog.text


def test_letters_are_deleted_in_batches_until_none_is_left(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["harness.prune.prune"], "LETTERS", 2)
    for n in range(5):
        discard(place.database, place.store, SERVICE, place.dead(f"j{n}"), "ann", Events(), "no need")
    place.run("UPDATE core.dead_letters SET resolved_at = now() - interval '99 days'")
    assert run(place)["letters"] == 5


def test_two_at_once_delete_each_row_once(place: Place) -> None:
    place.run(
        "INSERT INTO core.processed_jobs (job_id, consumer, state, processed_at)"
        " SELECT 'j' || n, 'billing/pay', 'done', now() - interval '99 days' FROM generate_series(1, 20000) n"
    )
    counts: list[dict[str, int]] = []

    def pruning() -> None:
        database = Database(place.url)
        counts.append(prune(database, place.store, SERVICE, 7 * DAY, 90 * DAY, Events(), batch_pages=16))
        database.dispose()

    threads = [threading.Thread(target=pruning) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(count["fences"] for count in counts) == 20_000
    assert sum(count["failed"] for count in counts) == 0


@pytest.mark.parametrize(
    ("processed_ttl", "letters_ttl"), [(DAY - 1, DAY), (0, DAY), (-1, DAY), (float("nan"), DAY), (7 * DAY, 0)]
)
def test_short_ttls_are_refused(place: Place, processed_ttl: float, letters_ttl: float) -> None:
    place.done("a")
    age(place, a=99)
    with pytest.raises(ConfigError, match="a day at least"):
        prune(place.database, place.store, SERVICE, processed_ttl, letters_ttl, place.events)
    assert fences(place) == {"a"}


def test_database_away_is_raised(place: Place) -> None:
    nowhere = Database("postgresql://postgres@127.0.0.1:1/none")
    with pytest.raises(DatabaseAway):
        prune(nowhere, place.store, SERVICE, 7 * DAY, 90 * DAY, place.events)
