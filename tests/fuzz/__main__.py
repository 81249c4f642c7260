"""`python -m tests.fuzz`: many mutated messages into a worker, on each broker."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz import run
from tests.services import Servers


def main() -> int:
    """0 if every message is accounted for, 1 if not: then the messages in question are in a file."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000, help="how many, over all brokers (default: 10000)")
    parser.add_argument("--seed", type=int, default=None, help="of the messages (default: drawn, and printed)")
    parser.add_argument("--broker", choices=["rabbitmq", "redis"], action="append", help="only this one")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="send the messages of a failed run again")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended
    seed = random.randrange(10**6) if chosen.seed is None else chosen.seed
    brokers = chosen.broker or ["rabbitmq", "redis"]
    servers = Servers()
    try:
        results = [once(servers, broker, seed, chosen.messages // len(brokers), chosen.replay) for broker in brokers]
    finally:
        servers.close()
    return 0 if all(results) else 1


def once(servers: Servers, broker: str, seed: int, count: int, replay: Path | None) -> bool:
    """One broker; prints what became of the messages."""
    amqp = broker == "rabbitmq"
    url, database = (servers.rabbitmq_url() if amqp else servers.redis_url()), servers.databases().make()
    items = run.load(replay) if replay else run.make(seed, count, amqp)
    print(f"{broker}: {len(items)} messages, seed {seed}", flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        made = run.Run(url, database, servers.redis_url(), Path(folder), lambda text: print(f"  {text}", flush=True))
        try:
            made.send(items)
            made.ends_well(items)
        except run.Broken as broken:
            print(f"{broker}: BROKEN {broken}")
            print(f"  repeat: python -m tests.fuzz --broker {broker} --replay {run.save(broken.items, str(broken))}")
            return False
        finally:
            print(f"  troubles in the log: {dict(made.troubles())}")
            made.close()
    ends = " ".join(f"{name}: {n}" for name, n in sorted(made.ends.items()))
    ends += f" refused by the broker: {made.sender.refused} still under way: {made.unfinished}"
    print(f"{broker}: messages: {len(items)} lost: 0 {ends} seconds: {time.monotonic() - begun:.0f}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
