"""`migrate`: the tables, and what a DBA wants to know of them."""

import json
import math
from dataclasses import dataclass
from typing import Any

import click
from alembic.util import CommandError

from harness.cli.door import OK, REFUSED, Door, app_name, door, json_option, refuse, where
from harness.store import migrate as migrations
from harness.store import revisions
from harness.store.grants import grants
from harness.store.patience import MigrationBlocked, Patience
from harness.store.revisions import OLDEST, Stand

BLOCKED = 5
CODES = (
    "Exit codes: 0 done, or nothing to do; 1 error or refused, with --check: behind; 2 wrong usage; 5 another "
    "session's lock was in the way, try again."
)
_USUAL = Patience()


class Seconds(click.FloatRange):
    """More than none, and as PostgreSQL takes it: milliseconds in 32 bits. What is no number passes a mere range."""

    def __init__(self) -> None:
        super().__init__(0, 2_147_483, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = float(super().convert(value, param, ctx))
        if math.isnan(seconds):
            self.fail(f"{value!r} is no number of seconds.", param, ctx)
        return seconds


@click.command(epilog=CODES)
@click.option("--check", is_flag=True, help="Change nothing; end with 1 if tables are missing or behind this release.")
@click.option("--sql", is_flag=True, help="Change nothing; write the SQL to be run by hand, for psql.")
@click.option("--from", "since", metavar="REVISION", help="With --sql: where to begin ('base': nothing is there yet); "
              "without it the database is asked.")  # fmt: skip
@click.option("--grants", "role", metavar="ROLE", help="Change nothing; write the GRANTs for a role that owns nothing.")
@click.option("--down", metavar="REVISION", help="Take migrations back, down to this one; 'base' drops every table.")
@click.option("--yes", is_flag=True, help="Really drop what --down drops, with its data.")
@click.option("--lock-timeout", type=Seconds(), default=_USUAL.lock_timeout, show_default=True,
              metavar="SECONDS", help="Wait so long for a lock; the workers wait behind it meanwhile.")  # fmt: skip
@click.option("--tries", type=click.IntRange(1), default=_USUAL.tries, show_default=True,
              help="Try so often in all, with growing pauses.")  # fmt: skip
@json_option
@click.pass_context
def migrate(
    ctx: click.Context,
    check: bool,
    sql: bool,
    since: str | None,
    role: str | None,
    down: str | None,
    yes: bool,
    lock_timeout: float,
    tries: int,
    as_json: bool,
) -> None:
    """Create the tables, or bring them up to this release.

    They go into the PostgreSQL schema harness_schema (default: core). Does nothing when they are up to date, or when a
    newer release has migrated them, so it can be run at every deploy; two that run at once go one after the other.
    """
    if sum((check, sql, role is not None, down is not None)) > 1:
        raise click.UsageError("--check, --sql, --grants and --down exclude each other.")
    if role is not None and not role.strip():
        raise click.UsageError("--grants wants the name of a role.")
    if since is not None and not sql:
        raise click.UsageError("--from goes with --sql.")
    here = _Here(door(), Patience(lock_timeout=lock_timeout, tries=tries), as_json)
    if role is not None:
        click.echo("\n".join(f"{statement};" for statement in grants(here.schema, role)))
    elif sql:
        here.write(since)
    elif check:
        ctx.exit(here.check())
    else:
        here.change(down, yes=yes)


@dataclass(frozen=True)
class _Here:
    door: Door
    patience: Patience
    as_json: bool

    @property
    def url(self) -> str:
        return self.door.harness.settings.database_url

    @property
    def schema(self) -> str:
        return self.door.harness.settings.schema_name

    @property
    def where(self) -> str:
        return where(self.door.harness)

    def write(self, since: str | None) -> None:
        """The SQL, for a database that need not be there."""
        start = migrations.current(self.url, self.schema) if since is None else None if since == "base" else since
        try:
            click.echo(migrations.sql(self.schema, start, patience=self.patience), nl=False)
        except CommandError as error:
            refuse(f"There is no way from {start} to {revisions.newest()}: {error}.")

    def check(self) -> int:
        """Say where the schema stands; the exit code."""
        before, newest = migrations.current(self.url, self.schema), revisions.newest()
        stand = revisions.stand(before)
        good = stand in (Stand.UP_TO_DATE, Stand.AHEAD)
        if self.as_json:
            facts = {"schema": self.schema, "current": before, "newest": newest, "oldest": OLDEST}
            click.echo(json.dumps(facts | {"status": str(stand)}))
        elif stand is Stand.UP_TO_DATE:
            self.door.out.print(f"{self.where}: {before}, up to date")
        elif good:
            self.door.out.print(f"{self.where}: {before}, of a newer release; this one brings {newest}")
        else:
            works = " (this release's workers start on it, with a warning)" if stand is Stand.BEHIND else ""
            refuse(
                f"{self.where} is at {before or 'nothing'}{works}, this release needs {newest}: "
                f"celery -A {app_name()} harness migrate"
            )
        return OK if good else REFUSED

    def change(self, down: str | None, *, yes: bool) -> None:
        """Migrate, and say from where to where."""
        before, newest = migrations.current(self.url, self.schema), revisions.newest()
        if down is None and revisions.stand(before) is Stand.AHEAD:
            # A roll-back to this release must not fail here: it works on the tables of the next one.
            click.echo(
                f"{self.where} is at {before}, which this release does not know: a newer release has migrated it. "
                f"Nothing was done. Releases next to each other work on the same tables; this one brings {newest}.",
                err=True,
            )
            self._say(before, before)
            return
        if down is not None and not yes:
            refuse(
                f"--down {down} drops tables or columns of {self.where}, with the fences and letters in them: jobs "
                "could run a second time, evidence would be lost. Nothing was done. If that is wanted, say --yes as "
                "well."
            )
        try:
            if down is None:
                migrations.upgrade(self.url, self.schema, patience=self.patience)
            else:
                migrations.downgrade(self.url, self.schema, down, self.patience)
        except MigrationBlocked as blocked:
            refuse(f"{blocked} It is at {migrations.current(self.url, self.schema) or 'nothing'} now.", BLOCKED)
        except CommandError as error:
            refuse(
                f"{self.where} is at {before or 'nothing'}, which can't be brought to {down or newest}: {error}. A "
                "revision that is not known belongs to a newer release of celery-job-harness: install that one."
            )
        self._say(before, migrations.current(self.url, self.schema))

    def _say(self, before: str | None, after: str | None) -> None:
        if self.as_json:
            click.echo(json.dumps({"schema": self.schema, "before": before, "after": after}))
            return
        same = f"{after or 'nothing'}, up to date" if revisions.stand(after) is not Stand.AHEAD else f"{after}"
        change = same if before == after else f"{before or 'nothing'} → {after or 'nothing'}"
        self.door.out.print(f"{self.where}: {change}")
