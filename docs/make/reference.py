"""The reference pages, made of the code: settings, commands, tables, reasons, log lines, failures."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
from columns import MEANINGS, TABLES
from sqlalchemy import CheckConstraint, Column, Table, UniqueConstraint
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex

from harness.cli import harness as commands
from harness.core import events
from harness.core.reason import Reason
from harness.observe import log
from harness.store.schema import tables_of
from harness.worker.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 100
DIALECT: Any = postgresql.dialect()  # type: ignore[no-untyped-call]
#: Where the default of a setting is not the field's own.
DEFAULTS = {"service": "the app's name", "database_url": "none, must be set"}


def pages() -> dict[str, str]:
    """Every page that is made of the code: its path below `docs/`, its text."""
    return {
        "reference/settings.md": settings(),
        "reference/cli.md": cli(),
        "reference/tables.md": tables(),
        "reference/reasons.md": reasons(),
        "reference/events.md": log_lines(),
        "reference/failures.md": failures(),
        "reference/relay.md": (ROOT / "benchmarks" / "RELAY.md").read_text(encoding="utf-8"),
        "reference/measured.md": (ROOT / "benchmarks" / "FAILURES.md").read_text(encoding="utf-8"),
    }


def settings() -> str:
    rows = []
    for name, field in Settings.model_fields.items():
        default = DEFAULTS.get(name) or f"`{_number(field.default)!r}`"
        rows.append(f"| `harness_{field.alias or name}` | {default} | {field.description} |")
    return f"""# Settings

In `celeryconfig.py`, or as keywords of `Harness(app, …)` without the prefix `harness_`. Times are in seconds. How
Celery finds them, also under a namespace, is told in [Adopt it](../howto/adopt.md#where-settings-stand).

| setting | default | meaning |
|---|---|---|
{_lines(rows)}

In the environment, and stronger than the configuration: `HARNESS_DATABASE_URL`, and Celery's own `CELERY_BROKER_URL`.
An unknown `harness_…` setting is an error at the start of a worker, with the list of the known ones.
"""


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def cli() -> str:
    parts = []
    for path, command in _commands(commands, "harness"):
        context = click.Context(command, info_name=f"celery -A yourapp {path}", terminal_width=WIDTH)
        parts.append(f"## {path}\n\n```text\n{command.get_help(context)}\n```\n")
    return f"""# Commands

`celery -A yourapp harness …`: the text below is what `--help` prints. Text is for people; where a machine reads, there
is `--json`. Errors go to standard error.

{_lines(parts)}"""


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _commands(inner, f"{path} {name}")


def tables() -> str:
    found = tables_of("core")
    parts = [_table(getattr(found, name), text) for name, text in TABLES.items()]
    return f"""# Tables

In the PostgreSQL schema `harness_schema`, by default `core`. `celery -A yourapp harness migrate` makes them. Read them
as you like; write them through the commands only, which lock in the right order and keep the audit log.

{_lines(parts)}"""


def _table(table: Table, text: str) -> str:
    rows = []
    for column in table.columns:
        kind = column.type.compile(DIALECT).lower()
        rows.append(f"| `{column.name}` | {kind} | {_default(column)} | {MEANINGS[f'{table.name}.{column.name}']} |")
    return f"""## {table.name}

{text}

| column | type | if not given | meaning |
|---|---|---|---|
{_lines(rows)}

{_lines(_rules(table))}
"""


def _default(column: Column[Any]) -> str:
    if column.identity is not None:
        return "the next number"
    if column.server_default is not None:
        return f"`{column.server_default.arg}`"  # type: ignore[attr-defined]
    return "NULL" if column.nullable else "must be given"


def _rules(table: Table) -> list[str]:
    rules = [f"- Primary key: {_names(table.primary_key)}."]
    for constraint in sorted(table.constraints, key=lambda c: str(c.name)):
        if isinstance(constraint, UniqueConstraint):
            rules.append(f"- Unique: {_names(constraint)}.")
        if isinstance(constraint, CheckConstraint):
            rules.append(f"- Check: `{constraint.sqltext}`.")
    for index in sorted(table.indexes, key=lambda i: str(i.name)):
        sql = str(CreateIndex(index).compile(dialect=DIALECT))
        rules.append(f"- Index: `{' '.join(sql.split())}`.")
    return rules


def _names(constraint: Any) -> str:
    return ", ".join(f"`{column.name}`" for column in constraint.columns)


def reasons() -> str:
    rows = [f"| `{name}` | {text} |" for name, text in _documented(Reason)]
    return f"""# Reasons

Why a job is dead: `dead_letters.reason`, `--reason` of the commands, the tag `reason` in Sentry. The set is closed: a
value is never renamed, for it is stored. What to do about each stands in the
[runbook](../howto/runbook.md#decide-by-the-reason).

| reason | meaning |
|---|---|
{_lines(rows)}
"""


def _documented(kind: type[Any]) -> Iterator[tuple[str, str]]:
    """The values of an enum with the text below each."""
    body = ast.parse(inspect.getsource(kind)).body[0].body  # type: ignore[attr-defined]
    for value, text in pairwise(body):
        if isinstance(value, ast.Assign) and isinstance(text, ast.Expr):
            yield value.targets[0].id, " ".join(text.value.value.split())  # type: ignore[attr-defined]


def log_lines() -> str:
    parts = []
    for event, (name, level) in log._NAMES.items():
        names = [field.name for field in fields(event)]
        told = ", ".join(f"`{name}`" for name in names if name not in log._LEFT_OUT)
        left_out = ", ".join(f"`{name}`" for name in names if name in log._LEFT_OUT)
        more = f" Only the event itself has {left_out}." if left_out else ""
        level_name = {20: "INFO", 30: "WARNING", 40: "ERROR"}[level]
        text = " ".join((event.__doc__ or "").split())
        parts.append(f"## {name}\n\n{level_name}, `{event.__name__}`. {text}\n\nFields: {told}.{more}\n")
    return f"""# Events and log lines

{inspect.getdoc(events)}

Each event is one line of the logger `harness.events`: its name, then `key=value`, never a payload. The same fields
stand in the record's attribute `harness` (a dict), for a JSON formatter. The loggers `harness` and `harness.events` are
the only ones of the package; `harness` has warnings, such as `database away`.

```text
completed job_id=order-1 task=shop.credit attempt=1 correlation_id=order-1 service=shop consumer=… seconds=0.004
```

Code of your own listens with `harness.events.subscribe(function)`; see [alerts](../howto/alerts.md).

{_lines(parts)}"""


def failures() -> str:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- failures -->\n(.*?)<!-- /failures -->", readme, re.S)
    if found is None:
        raise SystemExit(
            "README.md has lost the marks of its table of failures: <!-- failures --> … <!-- /failures -->"
        )
    return f"""# What each failure turns into

{found[1]}
What to do about a dead letter stands in the [runbook](../howto/runbook.md).
"""


def _lines(parts: list[str]) -> str:
    return "\n".join(parts)
