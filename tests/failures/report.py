"""The table: for a terminal, as Markdown, as JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version

from rich.table import Table

from tests.failures.count import Row

COLUMNS = ("sent", "effects", "letters", "waiting", "lost", "doubled", "deliveries")
Pair = tuple[Row | None, Row | None]


def pairs(rows: Sequence[Row]) -> list[Pair]:
    """Of each case and broker the harness's row and plain Celery's, in the order of the ways."""
    found: dict[tuple[int, str, str], dict[str, Row]] = {}
    for row in rows:
        found.setdefault((row.case.way, row.case.name, row.broker), {})[row.side] = row
    return [(both.get("harness"), both.get("plain")) for _, both in sorted(found.items())]


def last_line(rows: Sequence[Row]) -> str:
    ours = [row for row in rows if row.side == "harness"]
    lost, doubled = sum(row.lost for row in ours), sum(row.doubled for row in ours)
    return (
        f"cases: {len(ours)} lost: {lost} doubled: {doubled} without evidence: {sum(r.without_evidence for r in ours)}"
    )


def faults(rows: Sequence[Row]) -> list[str]:
    """What was not as expected on the harness, and what could not be run on either side."""
    bad = [row for row in rows if row.fault or (row.side == "harness" and row.bad)]
    return [f"{row.case.name} ({row.side}, {row.broker}): {row.fault or numbers(row)}" for row in bad]


def numbers(row: Row) -> str:
    return f"lost {row.lost}, doubled {row.doubled}, without evidence {row.without_evidence}"


def for_terminal(rows: Sequence[Row]) -> Table:
    table = Table(title="harness | plain Celery", title_justify="left")
    for name in ("way", "case", "broker"):
        table.add_column(name, overflow="fold")
    for name in COLUMNS:
        table.add_column("dead letters" if name == "letters" else name, justify="right")
    for ours, plain in pairs(rows):
        some = ours or plain
        assert some is not None
        bad = ours is not None and ours.bad
        table.add_row(
            str(some.case.way), some.case.name, some.broker, *_cells(ours, plain), style="red" if bad else None
        )
    return table


def _cells(ours: Row | None, plain: Row | None) -> list[str]:
    return [" | ".join("–" if row is None else _cell(row, name) for row in (ours, plain)) for name in COLUMNS]


def _cell(row: Row, name: str) -> str:
    value = getattr(row, name)
    return f"{value}" + ("†" if name == "deliveries" and row.side == "plain" and row.worker_ended else "")


def markdown(rows: Sequence[Row]) -> str:
    both = pairs(rows)
    plain = [row for row in rows if row.side == "plain"]
    harmed = [row for row in plain if row.lost or row.doubled]
    head = f"""# Every way to lose a job, measured

Written by `make failures` on {datetime.now(UTC):%Y-%m-%d}: Celery {version("celery")}, kombu {version("kombu")},
Python {platform.python_version()}, on RabbitMQ and a Redis-protocol broker. In each cell: the harness | plain Celery
with `task_acks_late`, `task_reject_on_worker_lost`, prefetch 1 and JSON, on the same messages and the same accident.

*sent*: jobs. *effects*: committed rows of the handler. *dead letters*: rows that an operator finds. *waiting*: in the
inbox or, for plain Celery, still with the broker when nothing happened any more. *lost*: no effect, and nothing that
says so. *doubled*: effects beyond the first of a job. *deliveries*: messages that the worker was given, its own retries
among them. †: the worker had ended by itself.

`{last_line(rows)}`; plain Celery lost or doubled in {len(harmed)} of {len(plain)} rows
({sum(row.lost for row in plain)} jobs lost, {sum(row.doubled for row in plain)} effects too many).
"""
    lines = [head]
    way = None
    for ours, other in both:
        some = ours or other
        assert some is not None
        if some.case.way != way:
            way = some.case.way
            lines += [
                f"\n## Way {way}\n",
                _line("case", "what goes wrong", "broker", *COLUMNS),
                _line(*["---"] * 3, *["---:"] * len(COLUMNS)),
            ]
        lines.append(
            _line(
                some.case.name, some.case.said, some.broker, *(cell.replace("|", "\\|") for cell in _cells(ours, other))
            )
        )
    return "\n".join(lines) + "\n"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def as_json(rows: Sequence[Row]) -> str:
    names = (*COLUMNS, "without_evidence", "worker_ended", "fault", "reasons")
    return json.dumps(
        {
            "rows": [
                {"case": r.case.name, "way": r.case.way, "said": r.case.said, "broker": r.broker, "side": r.side}
                | {name: getattr(r, name) for name in names}
                | {"seconds": round(r.seconds, 1)}
                for r in rows
            ],
            "last_line": last_line(rows),
            "not_as_expected": faults(rows),
        },
        indent=1,
    )
