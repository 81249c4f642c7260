"""`python -m tests.soak --minutes 5`: workers under load while all around them breaks; then the ledger is checked.

Exit code 0: every job has its one effect, or its one letter, and what happened to it is a path of the model; 1: at
least one has not, and logs and history are kept.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.services import Servers, rabbitmq_missing
from tests.soak.run import Soak, soak

BROKERS = ("rabbitmq", "redis")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="of load, shared by the brokers (default: 5)")
    parser.add_argument("--seed", type=int, help="the same schedule again (default: a new one, which is printed)")
    parser.add_argument("--broker", choices=(*BROKERS, "both"), default="both")
    parser.add_argument("--rate", type=float, default=5.0, help="jobs a second (default: 5)")
    asked = parser.parse_args()
    brokers = BROKERS if asked.broker == "both" else (asked.broker,)
    if "rabbitmq" in brokers and (missing := rabbitmq_missing()):
        print(f"soak: {missing}; or --broker redis", file=sys.stderr)
        return 1
    seed = random.SystemRandom().randrange(1_000_000) if asked.seed is None else asked.seed
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    servers = Servers()
    try:
        soaks = [_one(servers, kind, folder, asked.minutes * 60 / len(brokers), seed, asked.rate) for kind in brokers]
    finally:
        servers.close()
    return _report(soaks, folder, seed)


def _one(servers: Servers, kind: str, folder: Path, seconds: float, seed: int, rate: float) -> Soak:
    began = time.monotonic()
    print(f"{kind}: {seconds:.0f} s, {rate:g} jobs a second, --seed {seed}", flush=True)
    (folder / kind).mkdir()

    def tell(line: str) -> None:
        print(f"{kind:8} {line}", flush=True)

    found = soak(servers, kind, folder / kind, seconds=seconds, seed=seed, rate=rate, tell=tell)
    verdict = found.verdict
    print(f"{kind}: {found.operations} answers to the producer; {dict(verdict.ends)}; {found.chaos}")
    print(f"{kind}: letters of jobs that could have succeeded: {dict(verdict.given_up) or 'none'}")
    for name in ("lost", "doubled", "stuck", "violations"):
        for said in getattr(verdict, name):
            print(f"{kind}: {name.upper()}: {said}")
    for said in found.traces.misfits:
        print(f"{kind}: NO PATH OF THE MODEL: {said}")
    print(f"{kind}: {found.traces.line}")
    print(f"{kind}: {verdict.line} ({time.monotonic() - began:.0f} s)", flush=True)
    return found


def _report(soaks: list[Soak], folder: Path, seed: int) -> int:
    good = all(one.verdict.good and not one.traces.misfits for one in soaks)
    if good:
        shutil.rmtree(folder)
    else:
        print(f"\nlogs and history: {folder}\nagain: python -m tests.soak --seed {seed}")
    counts = {name: sum(len(getattr(one.verdict, name)) for one in soaks) for name in ("lost", "doubled", "stuck")}
    runs, violations = sum(one.ordered_runs for one in soaks), sum(len(one.verdict.violations) for one in soaks)
    print(f"order: runs={runs} violations={violations}")
    figures = " ".join(f"{name}={count}" for name, count in counts.items())
    print(f"soak: jobs={sum(one.verdict.jobs for one in soaks)} {figures}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
