"""`python -m tests.sweep`: every fail point × every fault, on both brokers; ends with one line of figures.

Exit code 0: no promise was broken; 1: at least one was, and the logs of those runs are kept.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

from harness.testing import POINTS
from tests.services import Servers, rabbitmq_missing
from tests.sweep.plan import FAULTS, IMPOSSIBLE, PAIRS, Pair
from tests.sweep.run import Run, Sweep, sweep

BROKERS = ("rabbitmq", "redis")


def main() -> int:
    asked = _arguments()
    brokers = BROKERS if asked.broker == "both" else (asked.broker,)
    pairs = _chosen(asked.only)
    if asked.list:
        print(*(f"{pair}" for pair in pairs), sep="\n")
        return 0
    if "rabbitmq" in brokers and (missing := rabbitmq_missing()):
        print(f"sweep: {missing}; or --broker redis", file=sys.stderr)
        return 1
    work = [(broker, pair) for pair in pairs for broker in brokers]
    folder = Path(tempfile.mkdtemp(prefix="crash-sweep-"))
    servers = Servers()
    began = time.monotonic()
    try:
        made = sweep(servers, work, lanes=asked.lanes, folder=folder, tell=_Progress(len(work)))
    finally:
        servers.close()
    _report(made, pairs, brokers, folder, time.monotonic() - began)
    expected = len(work) == len(made.runs)
    if made.violated or not expected:
        return 1
    shutil.rmtree(folder)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sweep", description=__doc__)
    parser.add_argument("--broker", choices=(*BROKERS, "both"), default="both")
    parser.add_argument("--only", action="append", default=[], metavar="POINT[:FAULT]", help="may be given often")
    parser.add_argument("--lanes", type=int, default=3, help="workers side by side, for each broker (default: 3)")
    parser.add_argument("--list", action="store_true", help="say which runs it would be")
    return parser.parse_args()


def _chosen(only: list[str]) -> list[Pair]:
    unknown = [one for one in only if one not in POINTS and one not in map(str, PAIRS) and one not in FAULTS]
    if unknown:
        sys.exit(f"sweep: no such point or pair: {', '.join(unknown)}; python -m tests.sweep --list names all")
    return [pair for pair in PAIRS if not only or {pair.point, str(pair), str(pair.fault)} & set(only)]


class _Progress:
    def __init__(self, total: int) -> None:
        self.total, self.done, self.lock = total, 0, threading.Lock()

    def __call__(self, run: Run) -> None:
        with self.lock:
            self.done += 1
            verdict = f"VIOLATED {run.problem.splitlines()[0]}" if run.problem else "ok"
            number = f"[{self.done:{len(str(self.total))}}/{self.total}]"
            print(
                f"{number} {run.broker:8} {run.pair.point:22} {run.pair.fault:13} {run.seconds:5.1f} s  {verdict}",
                flush=True,
            )


def _report(made: Sweep, pairs: list[Pair], brokers: tuple[str, ...], folder: Path, seconds: float) -> None:
    for run in made.runs:
        if run.problem:
            print(f"\n{run.broker} {run.pair}: {run.problem}\n  log: {run.log}\n  again: {run.again}")
    for trouble in made.unfinished:
        print(f"\n{trouble}\n  logs: {folder}")
    points, faults = {pair.point for pair in pairs}, {pair.fault for pair in pairs}
    cannot = {pair: why for pair, why in IMPOSSIBLE.items() if pair.point in points and pair.fault in faults}
    if cannot:
        print(f"\n{len(cannot)} of {len(points) * len(faults)} pairs cannot be, and are not counted:")
        for why in dict.fromkeys(cannot.values()):
            print(f"  {', '.join(str(pair) for pair, one in cannot.items() if one == why)}: {why}")
    print(f"{', '.join(brokers)}; {made.looks} looks meanwhile; {seconds:.0f} s; {os.cpu_count()} processors")
    print(f"sweep: points={len(points)} faults={len(faults)} runs={len(made.runs)} violated={made.violated}")


if __name__ == "__main__":
    sys.exit(main())
