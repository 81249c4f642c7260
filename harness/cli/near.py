"""What was meant, where a name or a number fits nothing."""

import difflib
import shlex
from typing import Any

import click
from sqlalchemy import select

from harness.cli.door import Door


class LetterNumber(click.ParamType[int]):
    """The number of a letter. A job's id in its place is told where to find it."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except (TypeError, ValueError):
            number = -1
        if not 0 <= number < 2**63:
            words = f"dead-letters list --job-id {shlex.quote(str(value))}"
            self.fail(f"{value!r} is no number of a letter. By the id of its job: {words}", param, ctx)
        return number


def no_letter(here: Door, task: str | None) -> str:
    """That no letter matches; where `task` is no name that the service has, with those that are like it."""
    text = "no letter matches"
    if task is None:
        return text
    table = here.store.letters.table
    with here.database.begin() as session:
        query = select(table.c.task).where(table.c.service == here.service).distinct()
        known = {*session.execute(query).scalars()}
    known |= {name for name in here.harness.app.tasks if not name.startswith("celery.")}
    if task in known:
        return text
    ends = sorted(name for name in known if name.endswith(f".{task}"))
    close = ends or difflib.get_close_matches(task, sorted(known), n=3)
    return f"{text}; no task is called {task}" + (f", is {' or '.join(close)} meant?" if close else "")
