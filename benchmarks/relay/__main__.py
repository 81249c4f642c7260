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
from benchmarks.relay.figures import Figures, Sizes, figures
from benchmarks.relay.stage import TABLE, Stage
from harness.dev.process import ServiceError
from harness.store.migrate import upgrade
from tests.rabbitmq import HOW_TO_GET, find_server

RESULTS = Path(__file__).parents[1] / "RELAY.md"
APP = "benchmarks.apps.relayed"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--broker",
    "brokers",
    type=click.Choice(["redis", "rabbitmq"]),
    multiple=True,
    help="One or both, one after the other.  [default: redis, and rabbitmq where it is installed]",
)
@click.option("--rows", type=click.IntRange(200), default=20_000, show_default=True, help="Rows to send.")
@click.option("--waiting", type=click.IntRange(50_000), default=1_000_000, show_default=True, help="Rows that wait.")
@click.option("--singles", type=click.IntRange(10), default=200, show_default=True, help="Jobs for each latency.")
@click.option("--results", type=click.Path(dir_okay=False, path_type=Path), help="Where the page goes, if anywhere.")
def main(brokers: tuple[str, ...], rows: int, waiting: int, singles: int, results: Path | None) -> None:
    """Measure the relay: from a commit to the broker and to the work, rows per second, keys, a long backlog.

    Each latency is measured with hints and with polling only, side by side. Starts PostgreSQL and each broker anew;
    about six minutes for a broker. The last line has the latency from commit to work of an idle worker, and the rows
    per second; of several brokers, each figure of the slower one.

    Exit status: 0; 2 for wrong options; 3 where a server, a worker or the relay fails.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    console = Console(stderr=True)

    def told(what: str) -> None:
        console.print(what, highlight=False)

    if not brokers:
        brokers = ("redis", "rabbitmq") if find_server() else ("redis",)
        if len(brokers) == 1:
            told(f"redis only: {HOW_TO_GET}")
    try:
        found = [_figures(broker, Sizes(rows, waiting, singles), told) for broker in brokers]
    except (ServiceError, RuntimeError) as error:
        console.print(f"bench-relay: {error}", style="red", markup=False)
        sys.exit(3)
    page = _page(found)
    Console().print(Markdown(page))
    if results is not None:
        results.write_text(page)
        click.echo(f"written to {os.path.relpath(results)}")
    p50, p99, rate = zip(*(one.last_line for one in found), strict=True)
    click.echo(f"relay: p50_ms={max(p50):.1f} p99_ms={max(p99):.1f} rows_per_s={min(rate):.0f}")


def _figures(broker: str, sizes: Sizes, told: Callable[[str], None]) -> Figures:
    with tempfile.TemporaryDirectory(prefix="harness-bench-") as name:
        folder = Path(name)
        with servers.started(folder, broker) as (postgres, served):
            os.environ |= {"HARNESS_DATABASE_URL": postgres.url, "CELERY_BROKER_URL": served.url}
            upgrade(postgres.url)
            sql = servers.Sql(postgres.url)
            sql.rows(servers.TABLES)
            sql.rows(TABLE)
            # It reads the URLs of its servers when it is imported.
            sys.modules.pop(APP, None)
            module = importlib.import_module(APP)
            try:
                return figures(Stage(sql, module.harness, module.mark, folder), broker, sizes, told)
            finally:
                sql.close()
                module.harness.close()


def _page(found: list[Figures]) -> str:
    head = f"""\
# How fast the relay is, measured

Written by `make bench-relay`, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, on {os.cpu_count()} cores, \
load at the end {os.getloadavg()[0]:.1f}.
"""
    return "\n".join([head, *(one.page() for one in found)])


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.relay")
