"""A few cases of the table, on the harness's side alone: the command runs, and what it counts is so."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.failures.case import Case
from tests.failures.count import Row
from tests.failures.kept import Kept
from tests.failures.lanes import lanes
from tests.failures.report import faults, last_line
from tests.failures.ways import ALL

ROOT = Path(__file__).parents[2]
CASES = ("child killed each time", "compressed bomb", "same id, two tasks", "forged relay headers")


def test_some_cases_on_redis(tmp_path: Path) -> None:
    page = tmp_path / "FAILURES.md"
    command = [sys.executable, "-m", "tests.failures", "--broker", "redis", "--side", "harness", "--json"]
    command += [f"--only={name}" for name in CASES] + ["--logs", str(tmp_path / "logs"), "--page", str(page)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    found = json.loads(run.stdout)
    assert found["last_line"] == "cases: 4 lost: 0 doubled: 0 without evidence: 0"
    assert found["not_as_expected"] == []
    rows = {row["case"]: row for row in found["rows"]}
    assert set(rows) == set(CASES)
    assert (rows["child killed each time"]["letters"], rows["child killed each time"]["effects"]) == (2, 0)
    assert rows["compressed bomb"]["reasons"] == {"undecodable": 1}
    assert "| compressed bomb |" in page.read_text()


def test_rows_that_are_kept_are_not_made_again(tmp_path: Path) -> None:
    case, other = Case("c", 1, "s"), Case("other", 1, "s")
    made = Kept(tmp_path / "rows", [case, other])
    made.add(Row(case, "harness", "redis", sent=1, effects=1, reasons={"x": 1}))
    made.add(Row(case, "harness", "rabbitmq", lost=1))
    made.add(Row(case, "plain", "redis", lost=1))
    made.add(Row(other, "plain", "redis", fault="not run"))
    read = Kept(tmp_path / "rows", [case, other])
    assert read.rows == made.rows
    left = lanes([case, other], ("redis", "rabbitmq"), has=read.has)
    assert {(lane.side, lane.broker, one.name) for lane in left for one in lane.cases} == {
        ("harness", "rabbitmq", "c"),
        ("plain", "rabbitmq", "c"),
        ("harness", "redis", "other"),
        ("harness", "rabbitmq", "other"),
        ("plain", "redis", "other"),
        ("plain", "rabbitmq", "other"),
    }
    read.add(Row(case, "harness", "rabbitmq", sent=1, effects=1))
    assert Kept(tmp_path / "rows", [case, other]).has(case, "harness", "rabbitmq")


def test_names_are_unique_and_every_way_is_one_of_the_sixteen() -> None:
    assert len({case.name for case in ALL}) == len(ALL) > 90
    assert {case.way for case in ALL} <= set(range(1, 17))


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"lost": 1}, True),
        ({"doubled": 1}, True),
        ({"without_evidence": 1}, True),
        ({"fault": "2 effects instead of 1"}, True),
        ({}, False),
        ({"side": "plain", "lost": 5}, False),
        ({"side": "plain", "fault": "not run"}, True),
    ],
)
def test_what_is_a_fault(row: dict[str, object], fault: bool) -> None:
    made = Row(Case("c", 1, "s"), **({"side": "harness", "broker": "redis"} | row))  # type: ignore[arg-type]
    assert bool(faults([made])) is fault
    assert last_line([made]).endswith("without evidence: 1") is ("without_evidence" in row)
