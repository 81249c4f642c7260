"""`python -m tests.order`: 20,000 jobs over 200 keys, 5 % of the runs fail, processes are killed; order is checked.

Exit code 0: each job took effect once, and began when all before it of its key had committed; 1: one did not, and the
workers' logs are kept.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.order.run import Verdict, order
from tests.services import Servers, rabbitmq_missing


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.order", description=__doc__)
    parser.add_argument("--broker", choices=("rabbitmq", "redis"), default="rabbitmq")
    parser.add_argument("--jobs", type=int, default=20_000, help="in all (default: 20000)")
    parser.add_argument("--keys", type=int, default=200, help="(default: 200)")
    parser.add_argument("--fails", type=float, default=0.05, help="part of the runs that fail (default: 0.05)")
    parser.add_argument("--seed", type=int, help="the same schedule again (default: a new one, which is printed)")
    parser.add_argument("--pause", type=float, default=4.0, help="seconds between two kills, about (default: 4)")
    parser.add_argument("--minutes", type=float, default=20.0, help="the longest that it may take (default: 20)")
    parser.add_argument("--fault", choices=("relay", "copy", "both"), default="", help="break the product on purpose")
    asked = parser.parse_args()
    if asked.jobs % asked.keys or asked.jobs < 1:
        parser.error("--jobs must be a multiple of --keys")
    if asked.broker == "rabbitmq" and (missing := rabbitmq_missing()):
        print(f"order: {missing}; or --broker redis", file=sys.stderr)
        return 1
    seed = random.SystemRandom().randrange(1_000_000) if asked.seed is None else asked.seed
    print(f"{asked.broker}: {asked.jobs} jobs over {asked.keys} keys, --seed {seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="order-"))
    servers = Servers()
    try:
        verdict = _shown(servers, asked, folder, seed)
    finally:
        servers.close()
    print(f"{verdict.runs} runs in {verdict.seconds:.0f} s; killed: {dict(verdict.chaos)}")
    for name in ("violations", "lost", "doubled"):
        for said in getattr(verdict, name)[:20]:
            print(f"{name.upper()}: {said}")
    if verdict.good:
        shutil.rmtree(folder)
    else:
        print(f"logs: {folder}")
    print(verdict.line)
    return 0 if verdict.good else 1


def _shown(servers: Servers, asked: argparse.Namespace, folder: Path, seed: int) -> Verdict:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bars = [progress.add_task(name, total=asked.jobs) for name in ("enqueued", "done")]

        said = [0.0]

        def told(sent: int, done: int) -> None:
            if not sys.stderr.isatty() and time.monotonic() - said[0] > 10:
                said[0] = time.monotonic()
                print(f"enqueued {sent}, done {done}", file=sys.stderr, flush=True)
            for bar, count in zip(bars, (sent, done), strict=True):
                progress.update(bar, completed=count)

        return order(
            servers,
            asked.broker,
            folder,
            jobs=asked.jobs,
            keys=asked.keys,
            fails=asked.fails,
            seed=seed,
            pause=(asked.pause / 4, asked.pause * 7 / 4),
            longest=asked.minutes * 60,
            fault=asked.fault,
            told=told,
        )


if __name__ == "__main__":
    sys.exit(main())
