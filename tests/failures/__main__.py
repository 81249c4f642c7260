"""`python -m tests.failures`, what `make failures` runs."""

from __future__ import annotations

import sys
import tempfile
from contextlib import closing
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.failures import report
from tests.failures.case import BROKERS, SIDES, Case
from tests.failures.count import Row
from tests.failures.kept import Kept
from tests.failures.lanes import lanes, run
from tests.failures.ways import ALL
from tests.services import Servers, rabbitmq_missing

PAGE = Path(__file__).parents[2] / "benchmarks" / "FAILURES.md"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--only", metavar="PATTERN", multiple=True, help="Cases whose name has this text in it; 'way:7' for a way."
)
@click.option("--broker", type=click.Choice(BROKERS), multiple=True, help="[default: both]")
@click.option("--side", type=click.Choice(SIDES), multiple=True, help="[default: both]")
@click.option(
    "--lanes", "side_by_side", type=click.IntRange(1, 32), default=6, show_default=True, help="Workers at once."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.option("--list", "listed", is_flag=True, help="Print the cases and run none.")
@click.option(
    "--logs", type=click.Path(path_type=Path), help="Keep the workers' logs there [default: they are removed]."
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    help="Keep the rows in this file; those that it has already, and that were as expected, are not made again.",
)
@click.option(
    "--page",
    type=click.Path(path_type=Path),
    help="Where the table is written [default: benchmarks/FAILURES.md, if all cases are run].",
)
def main(
    only: tuple[str, ...],
    broker: tuple[str, ...],
    side: tuple[str, ...],
    side_by_side: int,
    as_json: bool,
    listed: bool,
    logs: Path | None,
    keep: Path | None,
    page: Path | None,
) -> None:
    """What becomes of a job in each way to lose one: on the harness, and on plain Celery beside it.

    Starts servers of its own and a worker for each case that needs one. The last line is
    `cases: N lost: 0 doubled: 0 without evidence: 0`.

    Exit status: 0 where every row of the harness is as expected, 1 where one is not, 2 for wrong options, 3 where
    RabbitMQ is not installed.
    """
    cases = [case for case in ALL if not only or any(_matches(case, pattern) for pattern in only)]
    if not cases:
        raise click.UsageError("no case has that in its name; --list shows them")
    if listed:
        for case in cases:
            click.echo(f"{case.way:>2}  {case.name}: {case.said}")
        return
    brokers = broker or BROKERS
    if "rabbitmq" in brokers and (missing := rabbitmq_missing()):
        click.echo(f"failures: {missing}; or --broker redis", err=True)
        sys.exit(3)
    kept = Kept(keep, cases)
    todo = lanes(cases, brokers, side or SIDES, kept.has)
    total = sum(len(lane.cases) for lane in todo)
    console = Console(stderr=True)
    if not console.is_terminal:
        console.width = 500
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="failures-") as folder,
        closing(Servers()) as servers,
        Progress(*columns, console=console, transient=True) as bar,
    ):
        task = bar.add_task("servers", total=total)
        servers.databases()
        for name in brokers:
            servers.rabbitmq_url() if name == "rabbitmq" else servers.redis_url()

        def told(row: Row) -> None:
            kept.add(row)
            bar.update(task, advance=1, description=row.case.name)
            bad = row.side == "harness" and row.bad
            if bad or not console.is_terminal:
                text = f"{row.side:8}{row.broker:9}{row.case.name}: {row.seconds:.1f} s, {_short(row)}"
                console.print(text, style="red" if bad else None, highlight=False, markup=False)

        run(todo, servers, logs or Path(folder), side_by_side, told)
    rows = [row for row in kept.rows.values() if row.broker in brokers and row.side in (side or SIDES)]
    complete = not (only or broker or side)
    if page or complete:
        (page or PAGE).write_text(report.markdown(rows))
    if as_json:
        click.echo(report.as_json(rows))
    else:
        Console(width=None if console.is_terminal else 200).print(report.for_terminal(rows))
        for text in report.faults(rows):
            click.echo(f"not as expected: {text}")
        click.echo(report.last_line(rows))
    sys.exit(1 if report.faults(rows) else 0)


def _short(row: Row) -> str:
    if row.fault:
        return row.fault
    return (
        f"{row.effects} effects, {row.letters} letters, {row.waiting} waiting, lost {row.lost}, doubled {row.doubled}"
    )


def _matches(case: Case, pattern: str) -> bool:
    return pattern == f"way:{case.way}" or pattern.casefold() in case.name.casefold()


if __name__ == "__main__":
    main(prog_name="python -m tests.failures")
