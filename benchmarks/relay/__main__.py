"""`python -m benchmarks.relay`, what `make bench-relay` runs."""

import importlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.markdown import Markdown

from benchmarks import servers
from benchmarks.relay import measure
from benchmarks.relay.stage import TABLE, Stage
from harness.dev.process import ServiceError
from harness.store.migrate import upgrade

RESULTS = Path(__file__).parents[1] / "RELAY.md"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--broker", type=click.Choice(["redis", "rabbitmq"]), default="redis", show_default=True)
@click.option("--rows", type=click.IntRange(200), default=20_000, show_default=True, help="Rows to send.")
@click.option("--waiting", type=click.IntRange(200), default=1_000_000, show_default=True, help="Rows that wait.")
@click.option("--singles", type=click.IntRange(10), default=200, show_default=True, help="Single jobs, for latencies.")
@click.option("--results", type=click.Path(dir_okay=False, path_type=Path), help="Where the page goes, if anywhere.")
def main(broker: str, rows: int, waiting: int, singles: int, results: Path | None) -> None:
    """Measure the relay: from a commit to the broker and to the work, rows per second, keys, a long backlog.

    Each latency is measured with hints and with polling only, side by side. Starts PostgreSQL and a broker of its own;
    about five minutes. The last line has the latency from commit to work of an idle worker, and the rows per second.

    Exit status: 0; 2 for wrong options; 3 where a server, a worker or the relay fails.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="harness-bench-") as name:
        folder = Path(name)
        try:
            with servers.started(folder, broker) as (postgres, served):
                os.environ |= {"HARNESS_DATABASE_URL": postgres.url, "CELERY_BROKER_URL": served.url}
                upgrade(postgres.url)
                sql = servers.Sql(postgres.url)
                sql.rows(servers.TABLES)
                sql.rows(TABLE)
                module = importlib.import_module("benchmarks.apps.relayed")
                page, last = _measure(
                    Stage(sql, module.harness, module.mark, folder), broker, (rows, waiting, singles), console
                )
                sql.close()
        except (ServiceError, RuntimeError) as error:
            console.print(f"bench-relay: {error}", style="red", markup=False)
            sys.exit(3)
    Console().print(Markdown(page))
    if results is not None:
        results.write_text(page)
        click.echo(f"written to {os.path.relpath(results)}")
    click.echo(last)


def _measure(stage: Stage, broker: str, sizes: tuple[int, int, int], console: Console) -> tuple[str, str]:
    rows, waiting, singles = sizes
    table: list[str] = []

    def told(what: str) -> None:
        console.print(what, highlight=False)

    told(f"a backlog of {rows} rows")
    rate = measure.rows_per_second(stage, rows)
    line = "| {} | {} | {} |"
    begun: measure.Times | None = None
    latencies: dict[str, Callable[[bool], measure.Times]] = {
        "commit to published, idle": lambda on: measure.published(stage, singles, 1, 0.05, on),
        "commit to published, 500 jobs a second": lambda on: measure.published(stage, singles, 10, 0.02, on),
        "commit to start of work, idle": lambda on: measure.begun(stage, singles, 0.05, on),
    }
    for what, run in latencies.items():
        told(what)
        with_hints, polling = run(True), run(False)
        table.append(line.format(what, with_hints, polling))
        begun = with_hints
    jobs = max(singles, 20)
    keyed = []
    for keys in (1, 100):
        told(f"{jobs} jobs over {keys} keys")
        rates = [f"{measure.keyed(stage, jobs, keys, on):.0f}" for on in (True, False)]
        keyed.append(line.format(f"{jobs} jobs, {keys} key{'s' if keys > 1 else ''}", *rates))
    told(f"{waiting} rows that wait")
    backlog = measure.backlog(stage, waiting, 10.0 if waiting > 10_000 else 1.0)
    assert begun is not None
    page = "\n".join(
        [
            "# How fast the relay is, measured",
            "",
            f"Written by `make bench-relay`, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, on {os.cpu_count()} cores,"
            f" broker: {broker}, load at the end {os.getloadavg()[0]:.1f}.",
            "",
            f"One relay sends a backlog of {rows} rows at **{rate:.0f} rows per second**, all confirmed.",
            "",
            "| p50 / p99, ms | with hints | polling only |",
            "| --- | --- | --- |",
            *table,
            "",
            "| jobs per second, in order | with hints | polling only |",
            "| --- | --- | --- |",
            *keyed,
            "",
            f"With {backlog.rows} rows waiting a relay sends {backlog.per_second:.0f} rows per second and takes "
            f"{backlog.mebibytes:.0f} MiB of memory; an idle one {backlog.idle_mebibytes:.0f} MiB.",
            "",
        ]
    )
    return page, f"relay: p50_ms={begun.p50:.1f} p99_ms={begun.p99:.1f} rows_per_s={rate:.0f}"


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.relay")
