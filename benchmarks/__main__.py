"""`python -m benchmarks`, what `make bench` runs."""

import os
import signal
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import report
from benchmarks.run import Plan, run
from harness.dev.process import ServiceError

QUICK = {"rounds": 3, "jobs": 60, "singles": 20}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--broker", type=click.Choice(["redis", "rabbitmq"]), default="redis", show_default=True)
@click.option("--rounds", type=click.IntRange(3, 100), help="How often each variant is measured [default: 9].")
@click.option("--jobs", type=click.IntRange(40, 100_000), help="Jobs of a variant in a round [default: 1200].")
@click.option("--concurrency", type=click.IntRange(1, 64), default=2, show_default=True, help="Processes per worker.")
@click.option("--quick", is_flag=True, help="3 rounds of 60 jobs: does it work? The numbers mean nothing.")
@click.option("--check", is_flag=True, help="Exit with 1 where a bar is missed.")
@click.option(
    "--results",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the results go [default: benchmarks/RESULTS.md; with --quick nowhere].",
)
def main(
    broker: str,
    rounds: int | None,
    jobs: int | None,
    concurrency: int,
    quick: bool,
    check: bool,
    results: Path | None,
) -> None:
    """Measure the same job as plain Celery, behind a fence written by hand, and on the harness.

    Starts PostgreSQL and a broker of its own, and a prefork worker for each variant, which work off backlogs in turn.
    Three to five minutes. Writes benchmarks/RESULTS.md; the last line has the medians of the paired ratios.

    Exit status: 0; 1 with --check where a bar is missed; 2 for wrong options; 3 where a server or worker fails.
    """
    wanted = QUICK if quick else {}
    wanted |= {name: value for name, value in (("rounds", rounds), ("jobs", jobs)) if value is not None}
    plan = Plan(broker=broker, concurrency=concurrency, **wanted)
    # As an exit, so that the servers and workers are ended and the folder is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    console = Console(stderr=True)
    before = os.getloadavg()[0]
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def told(what: str, share: float) -> None:
            bar.update(task, description=what, completed=share)
            if not console.is_terminal:
                console.print(f"{share:4.0%} {what}", highlight=False)

        try:
            found = run(plan, told)
        except (ServiceError, RuntimeError) as error:
            console.print(f"bench: {error}", style="red", markup=False)
            sys.exit(3)
    page = report.markdown(found, (before, os.getloadavg()[0]))
    Console().print(Markdown(page))
    if (target := results or (None if quick else report.RESULTS)) is not None:
        target.write_text(page)
        click.echo(f"written to {os.path.relpath(target)}")
    missed = report.missed(found)
    for text in missed:
        click.echo(f"missed: {text}")
    click.echo(report.last_line(found))
    sys.exit(1 if check and missed else 0)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
