"""A short soak on each broker, and that the ledger's checker finds what is wrong. A long one: make soak MINUTES=5."""

from pathlib import Path

import pytest

from tests.model.traces import Seen
from tests.services import Databases, Servers
from tests.soak import traces
from tests.soak.history import Answer, History
from tests.soak.kinds import KINDS
from tests.soak.ledger import check, unsettled
from tests.soak.run import soak
from tests.worker.running import State


@pytest.mark.parametrize(
    "kind", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("rabbitmq", "redis")]
)
def test_a_short_soak(servers: Servers, kind: str, tmp_path: Path) -> None:
    found = soak(servers, kind, tmp_path, seconds=8, seed=7, rate=4)
    verdict = found.verdict
    assert (verdict.lost, verdict.doubled, verdict.stuck) == ([], [], [])
    assert verdict.jobs > 10
    assert sum(found.chaos.values()) > 2
    assert found.traces.misfits == []
    assert found.traces.transactions >= found.traces.jobs > 10
    print(found.traces.line, dict(found.traces.undecided))


FENCE = "INSERT INTO core.processed_jobs (job_id, consumer, state) VALUES ('j', 's/t', '{}')"
EFFECT = "INSERT INTO ledger (job_id) VALUES ('j')"
ORDER = "INSERT INTO orders VALUES ('j')"
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
    ],
)
def test_the_ledger(
    database: str, tmp_path: Path, kind: str | None, answer: Answer, rows: list[str], found: str
) -> None:
    """`found`: the list in which the job must be. Without a kind nobody has sent it."""
    state = State(database)
    state.sql("CREATE TABLE orders (job_id text PRIMARY KEY)")
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
