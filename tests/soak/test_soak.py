"""A short soak on each broker, and that the ledger's checker finds what is wrong. A long one: make soak MINUTES=5."""

from pathlib import Path

import pytest

from tests.model.traces import Seen
from tests.services import Databases, Servers
from tests.soak import traces
from tests.soak.history import Answer, History
from tests.soak.kinds import KINDS
from tests.soak.ledger import check, unsettled
from tests.soak.paths import misfit
from tests.soak.place import prepare
from tests.soak.run import soak
from tests.worker.running import State


@pytest.mark.parametrize(
    "kind", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("rabbitmq", "redis")]
)
def test_a_short_soak(servers: Servers, kind: str, tmp_path: Path) -> None:
    found = soak(servers, kind, tmp_path, seconds=12, seed=7, rate=4, least=15, strikes=4)
    verdict = found.verdict
    assert (verdict.lost, verdict.doubled, verdict.stuck, verdict.violations) == ([], [], [], [])
    assert verdict.jobs > 10
    assert sum(found.chaos.values()) > 2
    assert found.ordered_runs > 0
    assert found.traces.misfits == []
    assert found.traces.transactions >= found.traces.jobs > 10
    print(found.traces.line, dict(found.traces.undecided))


FENCE = "INSERT INTO core.processed_jobs (job_id, consumer, state) VALUES ('j', 's/t', '{}')"
EFFECT = "INSERT INTO ledger (job_id) VALUES ('j')"
ORDER = "INSERT INTO orders VALUES ('j')"
CALL = "INSERT INTO calls VALUES ('j')"
UNKNOWN_OUTCOME = (
    "INSERT INTO core.dead_letters (service, consumer, task, job_id, body, headers, properties, queue, reason, "
    "attempts, deliveries, error_type, error_message, traceback, fingerprint, failures, replays) "
    "VALUES ('s', 's/t', 't', 'j', '', '{}', '{}', 'q', 'outcome_unknown', 1, 1, '', '', '', '', '[]', 1)"
)
OK, UNKNOWN, REFUSED = Answer.ok, Answer.unknown, Answer.refused


@pytest.mark.parametrize(
    ("kind", "answer", "rows", "found"),
    [
        ("success", OK, [], "lost"),
        ("success", UNKNOWN, [], ""),
        ("success", OK, [FENCE.format("done"), EFFECT], ""),
        ("success", UNKNOWN, [FENCE.format("done"), EFFECT, EFFECT], "doubled"),
        ("success", OK, [EFFECT], "doubled"),
        ("success", OK, [FENCE.format("waiting")], "stuck"),
        ("permanent", OK, [FENCE.format("done"), EFFECT], "doubled"),
        ("enqueue", OK, [ORDER], "lost"),
        ("enqueue", UNKNOWN, [ORDER], "lost"),
        ("enqueue", UNKNOWN, [], ""),
        ("enqueue", UNKNOWN, [ORDER, FENCE.format("done"), EFFECT], ""),
        ("enqueue and roll back", REFUSED, [FENCE.format("done"), EFFECT], "doubled"),
        (None, OK, [FENCE.format("done"), EFFECT], "doubled"),
        ("keyed", OK, [ORDER], "lost"),
        ("keyed and roll back", REFUSED, [FENCE.format("done"), EFFECT], "doubled"),
        ("received", OK, [], "lost"),
        ("received", OK, [FENCE.format("done"), EFFECT], ""),
        ("received garbage", OK, [FENCE.format("done"), EFFECT], "doubled"),
        ("external", OK, [FENCE.format("done"), EFFECT, CALL], ""),
        ("external", OK, [FENCE.format("done"), EFFECT], "doubled"),
        ("external", OK, [FENCE.format("done"), EFFECT, CALL, CALL], "doubled"),
        ("external", OK, [FENCE.format("dead"), UNKNOWN_OUTCOME, CALL, CALL], ""),
        ("external", OK, [FENCE.format("dead"), UNKNOWN_OUTCOME, CALL, CALL, CALL], "doubled"),
    ],
)
def test_the_ledger(
    database: str, tmp_path: Path, kind: str | None, answer: Answer, rows: list[str], found: str
) -> None:
    """`found`: the list in which the job must be. Without a kind nobody has sent it."""
    state = State(database)
    prepare(state)
    history = History(tmp_path / "history")
    if kind is not None:
        history.note("j", next(one for one in KINDS if one.name == kind), answer)
    for row in rows:
        state.sql(row)
    verdict = check(history, state)
    assert {name for name in ("lost", "doubled", "stuck") if getattr(verdict, name)} == ({found} if found else set())
    assert verdict.good is not bool(found)
    if found in ("lost", "stuck"):
        assert unsettled(history, state)
    history.close()
    state.close()


def test_order_is_checked(database: str, tmp_path: Path) -> None:
    """What a run did not see ended, although it was before it; also where that was committed later."""
    state = State(database)
    prepare(state)
    state.sql("INSERT INTO orders SELECT 'j' || n, 'k', n FROM generate_series(1, 3) n")
    state.sql("INSERT INTO orders VALUES ('x1', 'other', 1)")
    state.sql("INSERT INTO order_runs (key, number, over) VALUES ('k', 1, '{}'), ('k', 2, '{1}'), ('k', 3, '{1,2}')")
    history = History(tmp_path / "history")
    assert check(history, state).violations == []
    state.sql("INSERT INTO order_runs (key, number, over) VALUES ('k', 3, '{1}')")
    verdict = check(history, state)
    assert (verdict.violations, verdict.good) == (["k: number 3 ran before 2 had ended"], False)
    history.close()
    state.close()


CLAIM = [Seen("claimed", 0), Seen("done", None, "", 1)]
UNKNOWN_THEN_REPLAYED = [
    Seen("claimed", 0),
    Seen("dead", None, "pending"),
    Seen("waiting", 0, "replayed"),
    Seen("claimed", 0, "replayed"),
    Seen("done", None, "resolved", 1),
]


@pytest.mark.parametrize(
    ("kind", "trace", "place"),
    [
        ("external", CLAIM, None),
        ("external", [Seen("claimed", 0), Seen("waiting", 1), *CLAIM], None),
        ("external", [Seen("waiting", 0), *CLAIM], None),
        ("external", UNKNOWN_THEN_REPLAYED, None),
        ("enqueue external", [Seen("", 0), *CLAIM], None),
        ("enqueue external", CLAIM, 0),
        ("external", [Seen("done", None, "", 1)], 0),
        ("external", [Seen("claimed", 0), Seen("claimed", None)], 1),
        ("external", [*UNKNOWN_THEN_REPLAYED[:2], Seen("done", None, "pending", 1)], 2),
        ("enqueue not ready", [Seen("", 0), Seen("waiting", 0), Seen("done", None, "", 1)], None),
        ("keyed", [Seen("", 0), Seen("waiting", 1), Seen("done", None, "", 1)], None),
        ("received", [Seen("", 0), Seen("done", None, "", 1)], None),
        ("received garbage", [Seen("dead", None, "pending")], None),
        ("received garbage", [Seen("", 0), Seen("done", None, "", 1)], 1),
    ],
)
def test_the_paths(kind: str, trace: list[Seen], place: int | None) -> None:
    assert misfit(trace, next(one for one in KINDS if one.name == kind)) == place


def test_the_traces(servers: Servers) -> None:
    """What commits is seen, in its order; what is no path of the model is found."""
    server = servers.own_postgres(**traces.SETTINGS)
    state = State(Databases(server.url).make())
    traces.install(state)
    good = next(kind for kind in KINDS if kind.name == "success")
    insert = "INSERT INTO core.processed_jobs (job_id, consumer, state) VALUES ('{}', 's/credit', 'done')"
    effect = "INSERT INTO ledger (job_id, task) VALUES ('{}', 'credit')"
    state.sql(f"DO $$ BEGIN {insert.format('right')}; {effect.format('right')}; END $$")
    state.sql(f"DO $$ BEGIN {insert.format('gone')}; RAISE EXCEPTION 'no'; EXCEPTION WHEN OTHERS THEN NULL; END $$")
    state.sql(insert.format("wrong"))
    state.sql(effect.format("wrong"))
    found = traces.traces(state)
    assert found == {
        ("right", "credit"): [Seen("done", None, "", 1)],
        ("wrong", "credit"): [Seen("done", None, "", 0), Seen("done", None, "", 1)],
    }
    checked = traces.check(found, {"right": good, "wrong": good})
    assert [said.split()[0] for said in checked.misfits] == ["wrong"]
    assert (checked.jobs, checked.transactions, checked.undecided.total()) == (2, 3, 0)
    state.close()
    servers.discard(server)


def test_the_best_answer_counts(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    for answer in (REFUSED, OK, UNKNOWN):
        history.note("j", KINDS[0], answer)
    assert history.entries["j"].answer is OK
    assert len((tmp_path / "history").read_text().splitlines()) == history.operations == 3
    history.close()
