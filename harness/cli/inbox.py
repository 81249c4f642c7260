"""`inbox`: what waits."""

import json
from datetime import UTC
from typing import Any

import click

from harness.cli.door import EXIT_CODES, door, json_option
from harness.cli.text import entries, many, span


@click.command(epilog=EXIT_CODES)
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Show at most so many.")
@json_option
def inbox(limit: int, as_json: bool) -> None:
    """List the jobs that wait: for a retry, a replay or the broker.

    Two lines each: when it is due, failed tries, queue and task; then job, deliveries and what else is known. The next
    to be sent comes first. "sent" is a job that is with the broker or at work; the time is when it would be
    sent again if nothing were heard of it. "claimed" is a job with external effects at work, until its claim is given
    up at the latest (UTC). A problem is what the relay met when it tried to send the job, the last
    error what the job's last try ended with; --json has the traceback, too.
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
    for text in _listed(rows, here.out.width):
        here.out.print(text, soft_wrap=True)
    here.out.print(("" if total == len(rows) else f"{len(rows)} of ") + many(total, "job"))


def _listed(rows: list[dict[str, Any]], width: int) -> list[str]:
    made = []
    for row in rows:
        when = "now" if row["due_in"] <= 0 else f"in {span(row['due_in'])}"
        due = f"sent, again {when}" if row["leased"] else when
        if row["claimed"]:
            due = f"claimed, until {row['available_at'].astimezone(UTC):%H:%M:%S}"
        more = [row["job_id"], many(row["deliveries"], "delivery")]
        if row["letter_id"]:
            more.append(f"replay of letter {row['letter_id']}")
        detail = ", ".join(more) + (f"; problem: {row['relay_error']}" if row["relay_error"] else "")
        if last := row["last_failure"]:
            detail += f"; last error: {last['error_type']}: {last['message']}"
        made.append(((due, str(row["attempts"]), row["queue"], row["task"]), detail))
    return entries(("due", ">tries", "queue", "task"), made, width)
