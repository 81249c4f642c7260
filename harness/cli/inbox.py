"""`inbox`: what waits."""

import json

import click
from rich.table import Table

from harness.cli.door import EXIT_CODES, door, json_option
from harness.cli.text import plain, span


@click.command(epilog=EXIT_CODES)
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Show at most so many.")
@json_option
def inbox(limit: int, as_json: bool) -> None:
    """List the jobs that wait: for a retry, a replay or the broker.

    The next to be sent comes first. "sent" is a job that is with the broker or at work; the time is when it would be
    sent again if nothing were heard of it. A problem is what the relay met when it tried to send the job.
    """
    here = door()
    with here.database.begin() as session:
        rows = here.store.inbox.overview(session, here.service, limit=limit)
        total = here.store.inbox.waiting(session, here.service)
    if as_json:
        click.echo(json.dumps(rows, indent=2, default=str))
        return
    if not rows:
        here.out.print("the inbox is empty")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("job", "task", "queue"):
        table.add_column(name, overflow="fold")
    for name in ("tries", "deliveries", "letter"):
        table.add_column(name, justify="right")
    table.add_column("due", no_wrap=True)
    table.add_column("problem", overflow="fold")
    for row in rows:
        when = "now" if row["due_in"] <= 0 else f"in {span(row['due_in'])}"
        table.add_row(
            plain(row["job_id"]),
            plain(row["task"]),
            plain(row["queue"]),
            str(row["attempts"]),
            str(row["deliveries"]),
            str(row["letter_id"] or ""),
            f"sent, again {when}" if row["leased"] else when,
            plain(row["relay_error"] or ""),
        )
    here.out.print(table)
    here.out.print(f"{len(rows)} of {total}")
