"""Which letters: the filters, and the guard in front of everything that is done to many at once."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import click

from harness.cli.door import Door, refuse
from harness.cli.text import Duration
from harness.core.reason import Reason
from harness.store.letter import Filter
from harness.store.schema import LETTER_STATUSES

NAMES = ("status", "task", "dead_reason", "job_id", "fingerprint", "tenant", "older", "newer")


def filter_options(*, reason: str = "--reason") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The filters as options. `reason` is the one for why the job is dead: `discard` has another use for --reason."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        statuses = click.Choice([*LETTER_STATUSES, "all"])
        reasons = click.Choice([str(value) for value in Reason])
        for option in (
            click.option("--newer", type=Duration(), help="Written since so long."),
            click.option("--older", type=Duration(), help="Written longer ago than this: 2h, 7d, 1d12h."),
            click.option("--tenant", help="Of this tenant."),
            click.option("--fingerprint", help="With this error at this place in the code."),
            click.option("--job-id", help="Of this job."),
            click.option(reason, "dead_reason", type=reasons, help="Dead for this reason."),
            click.option("--task", help="Of this task."),
            click.option("--status", type=statuses, help="[default: pending_review, unless letters are named]"),
        ):
            function = option(function)
        return function

    return add


def filter_of(given: dict[str, Any], ids: tuple[int, ...] = ()) -> Filter:
    """The options as a filter. Without `--status`: the pending letters; with `ids`, these whatever they are."""
    status = given["status"] or ("all" if ids else "pending_review")
    reason = given["dead_reason"]
    named = {name: given[name] for name in NAMES if name not in ("status", "dead_reason")}
    return Filter(
        ids=ids, status=None if status == "all" else status, reason=Reason(reason) if reason else None, **named
    )


@dataclass(frozen=True)
class Chosen:
    """The letters that a command is to act on; `named`: each by its number. `spared` fit as well and are left out."""

    ids: list[int]
    named: bool
    spared: int = 0


def choose(
    here: Door,
    letter_ids: tuple[int, ...],
    given: dict[str, Any],
    limit: int | None,
    spare: tuple[Reason, ...] = (),
) -> Chosen:
    """The letters that the command line means. Raises UsageError where it names none.

    Those that are dead for a reason in `spare` must be named, by number or by that reason.
    """
    if not any(given[name] is not None for name in NAMES):
        if not letter_ids:
            raise click.UsageError(
                "Which letters? Give their numbers or filters; --status pending_review means every open one."
            )
        return Chosen(list(dict.fromkeys(letter_ids)), named=True)
    with here.database.begin() as session:
        which = filter_of(given, letter_ids)
        ids = here.store.letters.ids(session, here.service, which)
        if not spare or letter_ids or which.reason in spare:
            return Chosen(ids[:limit], named=False)
        kept = here.store.letters.ids(session, here.service, replace(which, without=spare))
    return Chosen(kept[:limit], named=False, spared=len(ids) - len(kept))


def confirm(verb: str, chosen: Chosen, *, yes: bool, expect: int | None) -> None:
    """Let the command go on if its user knows how many letters it is about; refuse otherwise, with nothing done."""
    count = len(chosen.ids)
    if expect is not None and expect != count:
        refuse(f"--expect {expect}, but {count} letters match. Nothing was done.")
    if yes or expect is not None or chosen.named:
        return
    what = f"{count} letter{'' if count == 1 else 's'}"
    if not sys.stdin.isatty():
        refuse(f"This would {verb} {what}. Nothing was done. To go on, say --expect {count} (or --yes for any number).")
    if not click.confirm(f"{verb.capitalize()} {what}?", err=True):
        refuse("Nothing was done.")
