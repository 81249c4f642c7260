"""All that is measured with one broker, and the part of the page that says it."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from benchmarks.relay import measure
from benchmarks.relay.measure import Backlog, Begun, Times
from benchmarks.relay.stage import Stage

T = TypeVar("T")
#: Jobs a second that the page is about, ten in each transaction.
OFFERED, EACH = 500, 10
#: How often the rows per second are measured: one round may have a bad moment.
ROUNDS = 3
#: Seconds between two jobs of an idle relay.
IDLE = 0.05
#: What part of the jobs that a worker can end in a second is sent, to have it busy without a queue before it.
SUSTAINED = 0.6


@dataclass(frozen=True)
class Sizes:
    """`rows`: of the backlog that one relay sends. `waiting`: of the long one. `singles`: jobs for each latency."""

    rows: int
    waiting: int
    singles: int


@dataclass(frozen=True)
class Figures:
    """Pairs are: with hints, polling only. `rates`: rows per second, of each round.

    `keyed`: jobs per second, by number of keys. `worker`: what it can end.
    """

    broker: str
    sizes: Sizes
    rates: tuple[float, ...]
    published: tuple[Times, Times]
    published_busy: tuple[Times, Times]
    begun: tuple[Begun, Begun]
    worker: float
    begun_busy: tuple[Begun, Begun]
    begun_burst: tuple[Begun, Begun]
    keyed: dict[int, tuple[float, float]]
    backlog: Backlog

    @property
    def rows_per_second(self) -> float:
        """Of the round in the middle."""
        return median(self.rates)

    @property
    def last_line(self) -> tuple[float, float, float]:
        """p50 and p99 in ms from commit to start of work, idle, with hints; rows per second."""
        times = self.begun[0].times
        return times.p50, times.p99, self.rows_per_second

    def page(self) -> str:
        """This broker's part of the page, as Markdown."""
        busy, burst = self.begun_busy, self.begun_burst
        seconds = max(self.sizes.singles, 20) // 2 * EACH / OFFERED
        keyed = "\n".join(
            f"| {max(self.sizes.singles, 20)} jobs, {keys} key{'s' if keys > 1 else ''} | {on:.0f} | {off:.0f} |"
            for keys, (on, off) in self.keyed.items()
        )
        return f"""\
## {self.broker}

One relay sends a backlog of {self.sizes.rows} rows at **{self.rows_per_second:.0f} rows per second**, all confirmed: \
the median of {len(self.rates)} rounds
({", ".join(f"{rate:.0f}" for rate in self.rates)}).

| p50 / p99, ms | with hints | polling only |
| --- | --- | --- |
{_line("commit to published, idle", *self.published)}
{_line(f"commit to published, {OFFERED} jobs a second", *self.published_busy)}
{_line("commit to start of work, idle", *(one.times for one in self.begun))}
{_line(f"commit to start of work, {busy[0].offered:.0f} jobs a second", *(one.times for one in busy))}
{_line(f"commit to start of work, a burst of {burst[0].offered:.0f} a second", *(one.times for one in burst))}

The worker has two processes and shares the machine with all else. A backlog it works off at {self.worker:.0f} jobs \
a second.
Of the {busy[0].offered:.0f} a second above it begins {busy[0].kept:.0f}; of the burst, which lasts {seconds:.1f} s, \
{burst[0].kept:.0f} a second.
Where it begins fewer than are sent, the times are those of a queue that grows.

| jobs per second, in order | with hints | polling only |
| --- | --- | --- |
{keyed}

With {self.backlog.rows} rows waiting a relay sends {self.backlog.per_second:.0f} rows per second and takes \
{self.backlog.mebibytes:.0f} MiB of memory; an idle one {self.backlog.idle_mebibytes:.0f} MiB.
"""


def figures(stage: Stage, broker: str, sizes: Sizes, told: Callable[[str], None]) -> Figures:
    """Measure all, one after the other; `told` hears what is next."""

    def both(what: str, run: Callable[[bool], T]) -> tuple[T, T]:
        told(f"{broker}: {what}, with hints and polling only")
        return run(True), run(False)

    def published(each: int, interval: float) -> Callable[[bool], Times]:
        return lambda on: measure.published(stage, sizes.singles, each, interval, on)

    def begun(batches: int, each: int, interval: float) -> Callable[[bool], Begun]:
        return lambda on: measure.begun(stage, batches, each, interval, on)

    def keyed(keys: int) -> Callable[[bool], float]:
        return lambda on: measure.keyed(stage, jobs, keys, on)

    jobs = max(sizes.singles, 20)
    told(f"{broker}: a backlog of {sizes.rows} rows, and what a worker ends")
    rates = tuple(measure.rows_per_second(stage, sizes.rows) for _ in range(ROUNDS))
    worker = measure.capacity(stage, jobs * 5)
    return Figures(
        broker,
        sizes,
        rates=rates,
        published=both("commit to published", published(1, IDLE)),
        published_busy=both(f"commit to published, {OFFERED}/s", published(EACH, EACH / OFFERED)),
        begun=both("commit to start of work", begun(sizes.singles, 1, IDLE)),
        worker=worker,
        begun_busy=both("commit to start of work, busy", begun(jobs * 2, 1, 1 / (SUSTAINED * worker))),
        begun_burst=both(f"commit to start of work, {OFFERED}/s", begun(jobs // 2, EACH, EACH / OFFERED)),
        keyed={keys: both(f"{jobs} jobs over {keys} keys", keyed(keys)) for keys in (1, 100)},
        backlog=measure.backlog(stage, sizes.waiting, seconds=10.0),
    )


def _line(what: str, on: Times, off: Times) -> str:
    return f"| {what} | {on} | {off} |"
