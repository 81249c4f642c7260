"""`inbox`: what waits; `reorder`: after a restore."""

import json
from datetime import UTC
from typing import Any

import click
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from harness.cli import inbox_text
from harness.cli.door import EXIT_CODES, NOTHING, OK, Door, door, json_option, refuse
from harness.cli.text import entries, many, span
from harness.store.letter import Filter
from harness.store.order import WAITS_ITS_TURN
from harness.store.places import MOST_COUNTED

_CODES = "Exit codes: 0 done, also where nothing waits; 1 error; 2 wrong usage; 3 JOB_ID is not in the inbox."


@click.command(epilog=_CODES)
@click.argument("job_id", required=False)
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Show at most so many.")
@click.option("--blocked", is_flag=True, help="List the ordering keys that wait for a dead letter instead.")
@json_option
def inbox(job_id: str | None, limit: int, blocked: bool, as_json: bool) -> None:
    """List the jobs that wait: for a retry, a replay or the broker. With JOB_ID: show all that is known of this one.

    Two lines each: when it is due, failed tries, queue and task; then job, deliveries and what else is known. The next
    to be sent comes first. "sent" is a job that is with the broker or at work; the time is when it would be
    sent again if nothing were heard of it. "claimed" is a job with external effects at work, until its claim is given
    up at the latest (UTC). A problem is what the relay met when it tried to send the job, the last error what the job's
    last try ended with; --json has the traceback, too. A job that waits for its turn has an older one of its ordering
    key before it, or a dead letter that blocks the key.

    --blocked lists the keys whose jobs have on_dead="block", from a dead one until its letter is replayed with success
    or discarded, the longest blocked first: letter, since when, jobs that wait, key; then the dead job.
    """
    if blocked and job_id is not None:
        raise click.UsageError("--blocked lists keys; leave JOB_ID out.")
    here = door()
    if job_id is not None:
        _one(here, job_id, as_json)
        return
    if blocked:
        _blocked(here, limit, as_json)
        return
    with here.database.begin() as session:
        rows = here.store.inbox.overview(session, here.service, limit=limit)
        _say_before(here, session, rows)
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


def _one(here: Door, job_id: str, as_json: bool) -> None:
    with here.database.begin() as session:
        seen = here.store.inbox.overview(session, here.service, job_id=job_id)
        _say_before(here, session, seen)
        known = {row.consumer: row for row in here.store.inbox.rows_of(session, here.service, job_id)}
        letters = here.store.letters.find(session, here.service, Filter(job_id=job_id), limit=1)
    both = [(known[each["consumer"]], each) for each in seen if each["consumer"] in known]
    if not both:
        letter = f" It has a letter: dead-letters show {letters[0].id}" if letters else ""
        refuse(
            f"Service {here.service!r} has no job {job_id!r} in its inbox: it is done, dead or not known.{letter}",
            NOTHING,
        )
    if as_json:
        click.echo(json.dumps([inbox_text.as_json(row, each) for row, each in both], indent=2, default=str))
        return
    for row, each in both:
        inbox_text.write(here.out, row, each, _due(each))


def _due(row: dict[str, Any]) -> str:
    when = "now" if row["due_in"] <= 0 else f"in {span(row['due_in'])}"
    if row["claimed"]:
        return f"claimed, until {row['available_at'].astimezone(UTC):%H:%M:%S}"
    return f"sent, again {when}" if row["leased"] else "its turn" if row["waits_for"] else when


def _listed(rows: list[dict[str, Any]], width: int) -> list[str]:
    made = []
    for row in rows:
        more = [row["job_id"], many(row["deliveries"], "delivery")]
        if row["letter_id"]:
            more.append(f"replay of letter {row['letter_id']}")
        if row["ordering_key"] is not None:
            more.append(f"key {row['ordering_key']}")
        if row["waits_for"]:
            more.append(row["waits_for"])
        problem = row["relay_error"] if not row["waits_for"] else None
        detail = ", ".join(more) + (f"; problem: {problem}" if problem else "")
        if last := row["last_failure"]:
            detail += f"; last error: {last['error_type']}: {last['message']}"
        made.append(((_due(row), str(row["attempts"]), row["queue"], row["task"]), detail))
    return entries(("due", ">tries", "queue", "task"), made, width)


def _say_before(here: Door, session: Session, rows: list[dict[str, Any]]) -> None:
    """`waits_for`: what stands before a job that waits for its turn, None for all others."""
    seen: dict[str, tuple[str, int | None]] = {}
    for row in rows:
        row["waits_for"] = None
        key = row["ordering_key"]
        if row["relay_error"] != WAITS_ITS_TURN or key is None:
            continue
        if key not in seen:
            seen[key] = here.store.order.before(session, here.service, key)
        oldest, letter = seen[key]
        row["waits_for"] = f"behind {oldest}" if oldest != row["job_id"] else "its turn is next"
        if letter is not None and letter != row["letter_id"]:
            row["waits_for"] = f"blocked by letter {letter}"


def _blocked(here: Door, limit: int, as_json: bool) -> None:
    with here.database.begin() as session:
        rows = here.store.order.blocked(session, here.service, limit)
        now = session.execute(select(func.now())).scalar_one()
    if as_json:
        click.echo(json.dumps(rows, indent=2, default=str))
        return
    if not rows:
        here.out.print("no key is blocked")
        return
    made = [
        (
            (
                str(row["letter_id"]),
                span((now - row["since"]).total_seconds()),
                str(row["waiting"]) + ("+" if row["waiting"] >= MOST_COUNTED else ""),
                row["ordering_key"],
            ),
            f"{row['task']} {row['job_id']}: {row['reason']}, {row['status']}",
        )
        for row in rows
    ]
    for text in entries((">letter", "since", ">waiting", "key"), made, here.out.width):
        here.out.print(text, soft_wrap=True)


@click.command(epilog=EXIT_CODES)
@click.option("--yes", is_flag=True, help="Do it; without, only say how many jobs it is about.")
@json_option
@click.pass_context
def reorder(ctx: click.Context, yes: bool, as_json: bool) -> None:
    """After a dump was restored into another PostgreSQL: let the jobs with an ordering key run again.

    Their places are numbers of the old server's transactions, which the new server has yet to reach: until then they
    would wait, and newer jobs go before them. This puts them first, in their old order. Stop workers, relays and
    producers before. Not needed after pg_upgrade, a failover to a physical standby, or a restore of a physical backup.
    """
    here = door()
    with here.database.begin() as session:
        ahead = here.store.order.ahead(session, here.service)
        changed = here.store.order.renumber(session, here.service) if yes and ahead else 0
    if as_json:
        click.echo(json.dumps({"ahead": ahead, "changed": changed}))
    elif not ahead:
        here.out.print("all places are of this server's transactions; nothing to do")
    elif yes:
        here.out.print(f"{many(changed, 'place')} numbered anew, in the old order")
    else:
        jobs = f"{many(ahead, 'job')} {'has a place' if ahead == 1 else 'have places'} of another server's transactions"
        here.out.print(f"{jobs}; nothing was done without --yes")
    ctx.exit(OK if ahead else NOTHING)
