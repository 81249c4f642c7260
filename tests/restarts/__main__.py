"""`python -m tests.restarts`: PostgreSQL and the broker end and come back under load of every kind, time after time.

Exit code 0: no worker had to be started again, each job has its one effect or its letter, and each key its order; 1:
not so, and logs and history are kept.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.restarts.run import Restart, Restarted, restarts
from tests.services import Servers, rabbitmq_missing

BROKERS = ("rabbitmq", "redis", "redis that forgets")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.restarts", description=__doc__)
    parser.add_argument("--times", type=int, default=10, help="restarts on each broker (default: 10)")
    parser.add_argument("--seed", type=int, help="the same schedule again (default: a new one, which is printed)")
    parser.add_argument("--broker", choices=(*BROKERS, "all"), default="all")
    asked = parser.parse_args()
    brokers = BROKERS if asked.broker == "all" else (asked.broker,)
    if "rabbitmq" in brokers and (missing := rabbitmq_missing()):
        print(f"restarts: {missing}; or --broker redis", file=sys.stderr)
        return 1
    seed = random.SystemRandom().randrange(1_000_000) if asked.seed is None else asked.seed
    folder = Path(tempfile.mkdtemp(prefix="restarts-"))
    servers = Servers()
    try:
        made = [_one(servers, broker, folder, asked.times, seed) for broker in brokers]
    finally:
        servers.close()
    good = all(one.good for one in made)
    if good:
        shutil.rmtree(folder)
    else:
        print(f"logs and history: {folder}; again: python -m tests.restarts --seed {seed}")
    total = {name: sum(len(getattr(one.verdict, name)) for one in made) for name in FOUND}
    figures = " ".join(f"{name}={count}" for name, count in total.items())
    print(
        f"restarts: times={asked.times * len(brokers)} jobs={sum(one.verdict.jobs for one in made)} {figures} "
        f"dead_workers={sum(one.dead for one in made)}"
    )
    return 0 if good else 1


FOUND = ("lost", "doubled", "stuck", "violations")


def _one(servers: Servers, broker: str, folder: Path, times: int, seed: int) -> Restarted:
    dice = random.Random(f"{broker} {seed}")
    plan = [
        Restart(dice.choice(("database", "broker")), dice.random() < 0.6, round(dice.uniform(0.2, 8.0), 1))
        for _ in range(times)
    ]
    (folder / broker).mkdir()
    print(f"{broker}: --seed {seed}", flush=True)
    found = restarts(
        servers,
        broker.split()[0],
        folder / broker,
        plan,
        seed=seed,
        forgets=broker.endswith("forgets"),
        tell=lambda line: print(f"{broker}: {line}", flush=True),
    )
    for name in FOUND:
        for said in getattr(found.verdict, name):
            print(f"{broker}: {name.upper()}: {said}")
    for said in found.traces.misfits:
        print(f"{broker}: NO PATH OF THE MODEL: {said}")
    if found.forgotten:
        print(f"{broker}: {found.forgotten} messages were with the broker alone, or never reached it, and are gone")
    print(f"{broker}: {found.verdict.line}; {found.traces.line}", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
