"""The page of proofs names tests and cases that are there, all of the cases, and all sixteen ways."""

import re
from pathlib import Path

from tests.docs.pages import DOCS
from tests.failures.ways import ALL

PAGE = (DOCS / "reference" / "proofs.md").read_text(encoding="utf-8")
TESTS = Path(__file__).parents[1]
#: A test, as `folder/test_file.py::test_name`.
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
CASE = re.compile(r"(?<!\*)\*([^*\n]+)\*(?!\*)")


def rows() -> list[str]:
    return [line for line in PAGE.splitlines() if line.startswith("|") and not line.startswith("|---")]


def test_every_test_that_it_names_is_there() -> None:
    named = TEST.findall(PAGE)
    assert len(named) > 60
    missing = [f"{file}::{name}" for file, name in named if f"\ndef {name}(" not in _text(file)]
    assert missing == []


def test_it_names_the_cases_of_the_table_and_no_others() -> None:
    named = {name for row in rows() for name in CASE.findall(row)}
    assert named == {case.name for case in ALL}


def test_every_way_has_a_part_of_its_own_and_every_clause_a_proof() -> None:
    parts = re.split(r"^## (\d+)\. ", PAGE, flags=re.M)[1:]
    assert [int(number) for number in parts[::2]] == list(range(1, 17))
    for part in parts[1::2]:
        clauses = [line for line in part.splitlines() if line.startswith("| ")][1:]
        assert clauses
        assert [line for line in clauses if not (TEST.search(line) or CASE.search(line))] == []


def _text(file: str) -> str:
    path = TESTS / file
    return "\n" + path.read_text(encoding="utf-8") if path.exists() else ""
