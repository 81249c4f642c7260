"""What a run has found, as Markdown and as its last line."""

import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path

from benchmarks.run import AGAIN, Found
from benchmarks.stats import Median
from benchmarks.variants import NAMES

BARS = {"unfenced": 0.88, "handwritten": 0.97}
RESULTS = Path(__file__).with_name("RESULTS.md")
_PACKAGES = ("celery", "kombu", "sqlalchemy", "psycopg2-binary", "pydantic")


def last_line(found: Found) -> str:
    ratios = (f"vs_{base}={found.ratio('harness', base).value:.2f}" for base in BARS)
    return f"bench: {' '.join(ratios)}"


def missed(found: Found) -> list[str]:
    """The bars that the medians, as printed, do not reach, each in words."""
    return [
        f"{value:.2f} of the {base} task's throughput, where at least {bar:.2f} is asked for"
        for base, bar in BARS.items()
        if (value := round(found.ratio("harness", base).value, 2)) < bar
    ]


def markdown(found: Found, loads: tuple[float, float]) -> str:
    """The page. `loads`: the machine's load before and after the run."""
    plan = found.plan
    return f"""# What a job costs, measured

Written by `make bench`, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC.
[How it is measured, and how to read it](../docs/explanation/performance.md).

- Machine: {_machine()}; load {loads[0]:.1f} before the run, {loads[1]:.1f} after it.
- Python {platform.python_version()}, PostgreSQL {found.server} (fsync, synchronous_commit and full_page_writes on),
  {_broker(plan.broker)}, {", ".join(f"{name} {version(name)}" for name in _PACKAGES)}.
- Prefork workers of {plan.concurrency} processes; {plan.rounds} rounds of {plan.jobs} jobs for each variant, in turn.

## Throughput

Medians of {plan.rounds} rounds. In brackets: the order-statistic interval that holds the true median with a probability
of {found.ratio("harness", "unfenced").coverage:.0%}.

{_throughput(found)}

{_ratios(found)}

{_verdict(found)}

## Per job

{_per_job(found)}

Processor time is that of the round's median. The server's is that of its sessions. WAL is the median of the rounds.

## What the harness adds, by part

Microseconds of processor time, the lowest of several batches, each part alone in one process.

{_parts(found)}
"""


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB of memory, {platform.system()}"


def _broker(name: str) -> str:
    return "Valkey (append-only file, fsync once a second)" if name == "redis" else "RabbitMQ (classic queues)"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _throughput(found: Found) -> str:
    def shown(value: Median) -> str:
        return f"{value.value:.0f} [{value.low:.0f}, {value.high:.0f}]"

    rows = [[name, shown(found.of(name, attrgetter("rate")))] for name in (*NAMES, AGAIN)]
    return _table(("variant", "jobs per second"), rows)


def _ratios(found: Found) -> str:
    pairs = [
        ("harness", "unfenced", f"{BARS['unfenced']}, goal 0.95"),
        ("harness", "handwritten", f"{BARS['handwritten']}, goal 1.0"),
        ("handwritten", "unfenced", ""),
        (AGAIN, "unfenced", "the noise: equal things"),
    ]
    rows = [
        [f"{one} / {base}", str(found.ratio(one, base)), bar, str(found.thrift(one, base))] for one, base, bar in pairs
    ]
    return _table(("paired ratio", "throughput", "bar", "jobs per second of processor time"), rows)


def _verdict(found: Found) -> str:
    lines = [f"Missed: {text}." for text in missed(found)]
    return "\n".join(lines) or "Both bars are reached."


def _per_job(found: Found) -> str:
    rows = []
    for name in NAMES:
        traffic, latency = found.traffic[name], found.latency[name]
        rows.append(
            [
                name,
                f"{traffic.round_trips:g}",
                f"{traffic.statements:g}",
                f"{found.of(name, attrgetter('wal')).value:.0f}",
                f"{latency.p50 * 1e3:.1f} / {latency.p99 * 1e3:.1f}",
                *(f"{found.of(name, attrgetter(what)).value * 1e6:.0f}" for what in ("parent", "children", "server")),
            ]
        )
    head = ("variant", "round trips", "statements", "WAL bytes", "enqueue to commit p50 / p99, ms")
    return _table((*head, "parent µs", "children µs", "server µs"), rows)


def _parts(found: Found) -> str:
    if found.profile is None:
        return "Not measured."
    rows = [[part.name, part.process, f"{part.microseconds:.0f}"] for part in found.profile.parts]
    child = found.profile.child
    whole = ", ".join(f"{name} {child[name]:.0f}" for name in NAMES)
    return (
        f"{_table(('part', 'process', 'µs'), rows)}\n\nA whole delivery in the child, with Celery's own part: {whole}."
    )
