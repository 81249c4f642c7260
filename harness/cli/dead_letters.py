"""`dead-letters list | show | replay | discard`."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import click
from sqlalchemy import func, select

from harness.cli import letter_text
from harness.cli.choose import choose, confirm, filter_of, filter_options
from harness.cli.door import EXIT_CODES, NOTHING, OK, PARTLY, REFUSED, Door, actor_option, door, json_option, refuse
from harness.cli.letter_json import letter_json
from harness.cli.near import LetterNumber, no_letter
from harness.cli.text import many
from harness.core.reason import Reason
from harness.replay import Progress, Result, discard_many, replay_many
from harness.replay.discard import check_reason
from harness.replay.errors import NoSuchLetter

MOST_SAID = 20
LIST_EXIT_CODES = "Exit codes: 0 done, also where no letter matches; 1 error; 2 wrong usage."


@click.group("dead-letters", epilog=EXIT_CODES)
def dead_letters() -> None:
    """Find, understand, replay or discard the jobs that did not succeed."""


@dead_letters.command("list", epilog=LIST_EXIT_CODES)
@filter_options()
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Show at most so many.")
@json_option
def list_(limit: int, as_json: bool, **given: Any) -> None:
    """List letters, the newest first. Without --status: those that wait for a person (pending_review).

    Two lines each: number, age, reason, tries and task; then job and error. `show` has the rest, --json has it for
    machines.
    """
    here = door()
    which = filter_of(given)
    with here.database.begin() as session:
        letters = here.store.letters.find(session, here.service, which, limit=limit)
        total = here.store.letters.count(session, here.service, which)
        now = session.execute(select(func.now())).scalar_one()
    if as_json:
        click.echo(json.dumps([letter_json(letter, brief=True) for letter in letters], indent=2))
    elif letters:
        for text in letter_text.listed(letters, now, here.out.width):
            here.out.print(text, soft_wrap=True)
        rest = "" if total == len(letters) else f"{len(letters)} of "
        here.out.print(rest + many(total, "letter"))
    else:
        here.out.print(no_letter(here, given["task"]), soft_wrap=True)


@dead_letters.command("show", epilog=EXIT_CODES)
@click.argument("letter_id", type=LetterNumber())
@click.option("--tracebacks", is_flag=True, help="The traceback of every failure, not only of the last one.")
@json_option
def show(letter_id: int, tracebacks: bool, as_json: bool) -> None:
    """Show all that is known of a letter: message, failures, what was done to it and by whom.

    The arguments of the job are shown as they are.
    """
    here = door()
    with here.database.begin() as session:
        letter = here.store.letters.get(session, here.service, letter_id)
        trail = here.store.audit.of_letter(session, letter_id)
        if letter is None:
            refuse(f"Service {here.service!r} has no letter {letter_id}.", NOTHING)
        fence = here.store.fence.look(session, letter.key)
        waits = here.store.inbox.find(session, letter.key) is not None
        blocks = here.store.order.blocks(session, letter_id)
    if as_json:
        state = None if fence is None else str(fence.state)
        more = {"audit": [letter_text.audit_json(row) for row in trail], "fence": state, "in_inbox": waits}
        more["blocks"] = blocks
        click.echo(json.dumps(letter_json(letter) | more, indent=2))
        return
    letter_text.write(here.out, letter, trail, fence, waits, tracebacks=tracebacks, blocks=blocks)


def bulk_options(reason: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What `replay` and `discard` have in common."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            json_option,
            actor_option,
            click.option("--dry-run", is_flag=True, help="Say which letters it would be; change nothing."),
            click.option("--yes", is_flag=True, help="Go on however many match."),
            click.option("--expect", type=click.IntRange(0), metavar="N", help="Go on if exactly N letters match."),
            click.option("--limit", type=click.IntRange(1), help="Only so many of those that match, the oldest first."),
            filter_options(reason=reason),
            click.argument("letter_ids", type=LetterNumber(), nargs=-1),
        ):
            function = option(function)
        return function

    return add


@dead_letters.command("replay", epilog=EXIT_CODES)
@bulk_options("--reason")
@click.option("--note", help="Why, for the audit log.")
def replay(letter_ids: tuple[int, ...], note: str | None, **options: Any) -> None:
    """Have jobs tried again: the letters LETTER_IDS, or all that fit the filters.

    Same job, same message, all its tries. A job that has succeeded meanwhile is not sent: its letter is resolved. With
    filters the number of letters is shown, and has to be confirmed (on a terminal, or by --expect or --yes).

    Letters whose call may have taken effect (outcome_unknown), and conflicts, which run beside the job whose id they
    came with, are never meant by a filter: name them by number, or by --reason.
    """
    here = door()

    def act(ids: Sequence[int], progress: Progress) -> dict[str, int]:
        return replay_many(
            here.database, here.store, here.service, ids, options["actor"], here.harness.events, progress, note
        )

    _bulk(here, "replay", letter_ids, act, spare=(Reason.outcome_unknown, Reason.conflict), **options)


@dead_letters.command("discard", epilog=EXIT_CODES)
@bulk_options("--dead-reason")
@click.option("--reason", "why", required=True, help="Why these jobs need not be done; kept in letter and audit log.")
def discard(letter_ids: tuple[int, ...], why: str, **options: Any) -> None:
    """Close letters for good, unless their jobs have succeeded: LETTER_IDS, or all that fit the filters.

    The jobs will not run again. With filters the number of letters is shown, and has to be confirmed (on a terminal, or
    by --expect or --yes).
    """
    here = door()
    check_reason(why)

    def act(ids: Sequence[int], progress: Progress) -> dict[str, int]:
        return discard_many(
            here.database, here.store, here.service, ids, options["actor"], here.harness.events, why, progress
        )

    _bulk(here, "discard", letter_ids, act, **options)


def _bulk(
    here: Door,
    verb: str,
    letter_ids: tuple[int, ...],
    act: Callable[[Sequence[int], Progress], dict[str, int]],
    *,
    limit: int | None,
    expect: int | None,
    yes: bool,
    dry_run: bool,
    actor: str,
    as_json: bool,
    spare: tuple[Reason, ...] = (),
    **given: Any,
) -> None:
    ctx = click.get_current_context()
    chosen = choose(here, letter_ids, given, limit, spare)
    if chosen.spared:
        which = " and ".join(spare)
        left = f"{many(chosen.spared, 'letter')} left out: {which} must be named by number, or by --reason"
        click.echo(left, err=True)
    if dry_run or not chosen.ids:
        if as_json:
            click.echo(json.dumps({"matched": len(chosen.ids), "dry_run": dry_run, "ids": chosen.ids}))
        else:
            listed = ": " + ", ".join(map(str, chosen.ids)) if chosen.ids else ""
            what = f"would {verb} {many(len(chosen.ids), 'letter')}{listed}; nothing was done"
            here.out.print(what if chosen.ids else no_letter(here, given["task"]), soft_wrap=True)
        ctx.exit(OK if chosen.ids else NOTHING)
    confirm(verb, chosen, yes=yes, expect=expect)
    results: list[dict[str, Any]] = []
    unknown: list[int] = []

    def note(letter_id: int, what: Result | Exception) -> None:
        if isinstance(what, NoSuchLetter):
            unknown.append(letter_id)
        results.append({"id": letter_id} | letter_text.result_json(what))

    counts = act(chosen.ids, note)
    troubles = [r for r in results if "error" in r]
    if as_json:
        click.echo(json.dumps({"matched": len(chosen.ids), **counts, "letters": results}, indent=2))
    else:
        for trouble in troubles[:MOST_SAID]:
            click.echo(f"letter {trouble['id']}: {trouble['result']}: {trouble['error']}", err=True)
        if len(troubles) > MOST_SAID:
            click.echo(f"… and {len(troubles) - MOST_SAID} more; --json has them all", err=True)
        for text in letter_text.summary(counts):
            here.out.print(text, soft_wrap=True)
    if results and len(unknown) == len(results):
        ctx.exit(NOTHING)
    ctx.exit(OK if not troubles else REFUSED if len(troubles) == len(results) else PARTLY)
