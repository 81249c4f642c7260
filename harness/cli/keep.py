"""`prune` and `replay-sweep`: now, what beat does by itself."""

import json

import click

from harness.cli.door import EXIT_CODES, OK, PARTLY, actor_option, door, json_option
from harness.cli.text import many
from harness.worker.beat import run_prune, run_sweep


@click.command(epilog=EXIT_CODES)
@json_option
@click.pass_context
def prune(ctx: click.Context, as_json: bool) -> None:
    """Delete fences and letters that nothing can need any more.

    Fences older than harness_processed_ttl whose jobs have neither an inbox row nor an open letter, and letters
    resolved or discarded longer ago than harness_letters_ttl. Never a pending letter. Beat does the same every
    harness_prune_every seconds. What can't be deleted is logged, and the rest goes on (exit code 4).
    """
    here = door()
    counts = run_prune(here.harness)
    if as_json:
        click.echo(json.dumps(counts))
    else:
        here.out.print(f"deleted {many(counts['fences'], 'fence')} and {many(counts['letters'], 'letter')}", end="")
        here.out.print(f"; {many(counts['failed'], 'part')} failed, see the log" if counts["failed"] else "")
    ctx.exit(PARTLY if counts["failed"] else OK)


@click.command("replay-sweep", epilog=EXIT_CODES)
@actor_option
@json_option
@click.pass_context
def replay_sweep(ctx: click.Context, actor: str, as_json: bool) -> None:
    """Replay the pending letters whose jobs' gates (can_replay) say so.

    A letter whose gate says no stays as it is. One that is too old (max_age) or was replayed too often (max_replays) is
    surfaced: from then on it waits for a person. Beat does the same every harness_replay_every seconds. Exit code 4
    where a gate has raised.
    """
    here = door()
    here.harness.app.loader.import_default_modules()
    counts = run_sweep(here.harness, actor)
    if as_json:
        click.echo(json.dumps(counts))
    else:
        here.out.print(", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items()))
    ctx.exit(PARTLY if counts["failed"] else OK)
