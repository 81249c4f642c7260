"""A part of the sweep on each broker, and that neither plan nor checks have a hole. All of it: make crash-sweep."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness.testing import POINTS, Fault
from tests.services import Servers
from tests.sweep.checks import Watch
from tests.sweep.plan import COMMANDS, FAULTS, IMPOSSIBLE, PAIRS, WAYS, Pair
from tests.sweep.run import Run, Sweep, _blame, sweep
from tests.worker.running import ROOT

#: Each kind of process, and each fault; what tests/worker/test_kills.py and the canvas tests have is left out.
FEW = (
    Pair("before_pool", Fault.kill_process),
    Pair("after_record", Fault.kill_worker),
    Pair("before_ack", Fault.lose_broker),
    Pair("before_commit", Fault.lose_broker),
    Pair("after_stand_aside", Fault.lose_database),
    Pair("wait_committed", Fault.kill_process),
    Pair("claim_committed", Fault.kill_worker),
    Pair("before_give_up", Fault.lose_database),
    Pair("turn_taken", Fault.lose_database),
    Pair("after_turn_back", Fault.kill_process),
    Pair("before_pass_on", Fault.kill_process),
    Pair("take_written", Fault.lose_database),
    Pair("take_committed", Fault.kill_process),
    Pair("before_take_letter", Fault.lose_broker),
    Pair("before_send", Fault.kill_process),
    Pair("after_send", Fault.lose_broker),
    Pair("before_row_removed", Fault.lose_database),
    Pair("relay_lease_written", Fault.kill_process),
    Pair("relay_before_release", Fault.lose_database),
    Pair("replay_written", Fault.lose_broker),
)


@pytest.mark.parametrize(
    "kind", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("rabbitmq", "redis")]
)
def test_a_part_of_the_sweep(servers: Servers, kind: str, tmp_path: Path) -> None:
    made = sweep(servers, [(kind, pair) for pair in FEW], lanes=3, folder=tmp_path)
    assert made.unfinished == []
    assert {str(run.pair): run.problem for run in made.runs if run.problem} == {}
    assert {run.pair for run in made.runs} == set(FEW)
    assert made.looks > 100


def test_every_point_has_a_way_and_every_pair_is_run_or_said_to_be_impossible() -> None:
    assert WAYS.keys() | COMMANDS.keys() == POINTS.keys()
    assert not WAYS.keys() & COMMANDS.keys()
    assert {*PAIRS, *IMPOSSIBLE} == {Pair(point, fault) for point in POINTS for fault in FAULTS}
    assert len(PAIRS) + len(IMPOSSIBLE) == len(POINTS) * len(FAULTS)
    assert set(Fault) - set(FAULTS) == {Fault.raise_error}


FENCE = "INSERT INTO core.processed_jobs (job_id, consumer, state) VALUES ('j', 's/t', '{}')"
EFFECT = "INSERT INTO ledger (job_id) VALUES ('j')"


@pytest.mark.parametrize(
    ("rows", "broken"),
    [
        ([EFFECT], True),
        ([FENCE.format("done")], True),
        ([FENCE.format("waiting")], True),
        ([FENCE.format("dead")], True),
        ([FENCE.format("done"), EFFECT, EFFECT], True),
        ([FENCE.format("done"), EFFECT], False),
    ],
)
def test_the_watch_sees_what_is_broken(database: str, rows: list[str], broken: bool) -> None:
    watch = Watch(database)
    for row in rows:
        watch.state.sql(row)
    watch.look()
    assert bool(watch.broken) is broken
    run = Run("redis", PAIRS[0], jobs=("j",))
    made = Sweep(runs=[run])
    _blame(made, watch.broken)
    assert (made.violated, "seen meanwhile" in run.problem) == (int(broken), broken)
    watch.state.sql("INSERT INTO pruned VALUES ('j')")
    watch.broken.clear()
    watch.look()
    assert watch.broken == {}
    watch.state.close()


def test_an_effect_of_nobodys_job_counts_as_well(database: str) -> None:
    watch = Watch(database)
    watch.state.sql(EFFECT)
    watch.look()
    made = Sweep()
    _blame(made, watch.broken)
    assert made.violated == 1
    watch.state.close()


def test_the_command_names_its_pairs_and_refuses_others() -> None:
    def command(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([sys.executable, "-m", "tests.sweep", *words], cwd=ROOT, capture_output=True, text=True)

    told = command("--list", "--only", "before_ack")
    assert told.stdout.split() == ["before_ack:kill_process", "before_ack:kill_worker", "before_ack:lose_broker"]
    wrong = command("--only", "nowhere")
    assert (wrong.returncode, "no such point or pair: nowhere" in wrong.stderr) == (1, True)
