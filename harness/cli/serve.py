"""`relay`, `receive` and `dev`."""

from pathlib import Path

import click

from harness.cli.door import EXIT_CODES, door
from harness.store.database import DatabaseAway
from harness.worker.harness import Harness

LEVELS = click.Choice(["debug", "info", "warning", "error"], case_sensitive=False)


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
    # What its jobs say of themselves counts here, too: max_in_flight.
    here.harness.app.loader.import_default_modules()
    _needs_tables(here.harness)
    click.echo(f"relaying the jobs of service {here.service!r}; Ctrl-C or SIGTERM ends it", err=True)
    relaying.run(here.harness)


@click.command(epilog=EXIT_CODES)
@click.option("--source", "sources", multiple=True, metavar="NAME", help="Of this source; may be repeated.")
@click.option("--loglevel", type=LEVELS, default="info", show_default=True)
def receive(sources: tuple[str, ...], loglevel: str) -> None:
    """Take messages of others into the inbox, in the foreground: of all sources that the app declares.

    Each message is stored, then acknowledged. Each worker starts such a receiver as its child. Run it alone where the
    workers have harness_receive = "off"; any number may run at once. SIGTERM or Ctrl-C ends it, when what it has in
    hand is stored. A line with "receive: ready" says that it takes messages.
    """
    from harness.worker import receiving
    from harness.worker.chosen import chosen

    here = door()
    here.harness.app.loader.import_default_modules()
    here.harness.app.log.setup(loglevel=loglevel.upper(), redirect_stdouts=False)
    chosen(here.harness, sources)
    _needs_tables(here.harness)
    click.echo(f"receiving for service {here.service!r}; Ctrl-C or SIGTERM ends it", err=True)
    receiving.run(here.harness, sources)


def _needs_tables(harness: Harness) -> None:
    """A relay, or a receiver, waits for a database that is away, but not for one that has no tables."""
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
@click.option("--embedded", is_flag=True, help="Use the servers that come along, whatever is configured.")
@click.pass_context
def dev(ctx: click.Context, data: Path, concurrency: int, flower: bool | None, embedded: bool) -> None:
    """Run all that the app needs: PostgreSQL, a broker, worker, relay, beat and Flower.

    For development, in the foreground; one Ctrl-C stops all. PostgreSQL and a Redis-protocol broker come from the extra
    celery-job-harness[dev-server]; where the environment or the app's configuration names a server, that one is used,
    migrated and worked on. With --embedded none of them is touched, and a result backend is the embedded broker, too.
    """
    from harness.dev import run

    name = ctx.find_root().params.get("app")
    if not isinstance(name, str):
        raise click.UsageError("Which app? Name its module: celery -A yourapp harness dev")
    ctx.exit(run(name, data=data, pool_size=concurrency, flower=flower, embedded=embedded))
