"""Rows in a file, a line each as they come: a run that was cut off, or spoilt by a busy machine, goes on there."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from tests.failures.case import Case
from tests.failures.count import Row

Key = tuple[str, str, str]


def key(row: Row) -> Key:
    """Case, side, broker."""
    return row.case.name, row.side, row.broker


class Kept:
    """The rows of `file`; without one nothing is kept."""

    def __init__(self, file: Path | None, cases: Iterable[Case]) -> None:
        self.file = file
        self.rows: dict[Key, Row] = {}
        known = {case.name: case for case in cases}
        for line in file.read_text().splitlines() if file is not None and file.exists() else ():
            read = json.loads(line)
            if (case := known.get(read.pop("case"))) is not None:
                row = Row(case, **read)
                self.rows[key(row)] = row

    def has(self, case: Case, side: str, broker: str) -> bool:
        """Is there a row of it that needs not be made again?"""
        row = self.rows.get((case.name, side, broker))
        return row is not None and not row.fault and not (side == "harness" and row.bad)

    def add(self, row: Row) -> None:
        self.rows[key(row)] = row
        if self.file is not None:
            numbers = {one.name: getattr(row, one.name) for one in fields(row) if one.name != "case"}
            with self.file.open("a") as file:
                file.write(json.dumps({"case": row.case.name, **numbers}) + "\n")
