"""One run: servers, workers, rounds in turn, single jobs, statements, parts."""

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import servers, traffic, variants
from benchmarks.parts import Profile, profile
from benchmarks.stats import Median, median
from benchmarks.traffic import Traffic
from benchmarks.variants import NAMES, Latency, Sample, Variant
from harness.store.migrate import upgrade

#: The unfenced worker measured once more in each round: how far two equal things differ is the noise of the run.
AGAIN = "unfenced again"


@dataclass(frozen=True)
class Plan:
    """How much is measured. `interval`: seconds between two single jobs."""

    broker: str = "redis"
    rounds: int = 9
    jobs: int = 1200
    singles: int = 300
    interval: float = 0.01
    concurrency: int = 2


@dataclass
class Found:
    """What a run has measured; `rounds` holds one sample per variant for each round."""

    plan: Plan
    server: str = ""
    rounds: list[dict[str, Sample]] = field(default_factory=list)
    latency: dict[str, Latency] = field(default_factory=dict)
    traffic: dict[str, Traffic] = field(default_factory=dict)
    profile: Profile | None = None

    def ratio(self, variant: str, base: str) -> Median:
        """The median of the paired ratios of the throughput."""
        return median([found[variant].rate / found[base].rate for found in self.rounds])

    def thrift(self, variant: str, base: str) -> Median:
        """The same of the jobs per second of processor time."""
        return median([found[base].processor / found[variant].processor for found in self.rounds])

    def of(self, variant: str, what: Callable[[Sample], float]) -> Median:
        return median([what(found[variant]) for found in self.rounds])


Progress = Callable[[str, float], None]
"""Told what is done now, and which share of the whole is behind."""


def run(plan: Plan, progress: Progress) -> Found:
    """Measure by `plan`; takes a few minutes. Everything that was started has ended when it returns or raises."""
    found = Found(plan)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="harness-bench-")))
        progress("starting the servers", 0.0)
        postgres, broker = stack.enter_context(servers.started(folder, plan.broker))
        os.environ |= {"HARNESS_DATABASE_URL": postgres.url, "CELERY_BROKER_URL": broker.url}
        upgrade(postgres.url)
        sql = servers.Sql(postgres.url)
        stack.callback(sql.close)
        sql.rows(servers.TABLES)
        found.server = str(sql.value("SHOW server_version"))
        progress("starting the workers", 0.02)
        made = []
        for name in NAMES:
            variant = Variant(name, folder, sql, plan.concurrency)
            stack.callback(variant.worker.stop)
            made.append(variant)
        for variant in made:
            variant.worker.await_ready()
            variant.consume(False)
        _measure(found, made, progress)
        found.traffic = traffic.count(made, postgres, sql)
        progress("single jobs", 0.85)
        found.latency = variants.latencies(made, plan.singles, plan.interval)
        progress("the parts", 0.93)
        found.profile = profile({variant.name: variant.app for variant in made})
    return found


def _measure(found: Found, made: list[Variant], progress: Progress) -> None:
    """The rounds, each with every variant, in an order that changes; one round to warm up does not count."""
    todo = [(variant.name, variant) for variant in made]
    todo.insert(2, (AGAIN, made[0]))
    plan = found.plan
    for number in range(plan.rounds + 1):
        turn = number % len(todo)
        samples = {}
        for place, (name, variant) in enumerate([*todo[turn:], *todo[:turn]]):
            title = f"round {number} of {plan.rounds}: {name}" if number else f"warming up: {name}"
            progress(title, 0.05 + 0.8 * (number + place / len(todo)) / (plan.rounds + 1))
            samples[name] = variant.work_off(plan.jobs if number else max(plan.jobs // 4, 50))
        if number:
            found.rounds.append(samples)
