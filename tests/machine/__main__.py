"""`python -m tests.machine`: the machine for longer than the suite takes for it."""

from __future__ import annotations

import argparse
import logging
import random
import signal
import sys
import time

from tests.machine.running import run
from tests.services import Servers


def main() -> int:
    """0 if the laws hold; else 1, and the shortest way to what breaks one is printed."""
    parser = argparse.ArgumentParser(prog="python -m tests.machine", description=__doc__)
    parser.add_argument("--examples", type=int, default=300, help="how many lives of a service (default: 300)")
    parser.add_argument("--steps", type=int, default=60, help="the most that happens in each (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="of the choices (default: drawn, and printed)")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended
    seed = random.randrange(10**6) if chosen.seed is None else chosen.seed
    logging.disable(logging.WARNING)
    print(f"machine: {chosen.examples} examples, seed {seed}", flush=True)
    begun, servers = time.monotonic(), Servers()
    try:
        done = run(servers.databases().make(), chosen.examples, chosen.steps, of_seed=seed)
    except AssertionError as error:
        print("\n".join([str(error), *getattr(error, "__notes__", [])]))
        return 1
    finally:
        servers.close()
    print(f"machine: examples={chosen.examples} steps={done.steps} broken=0 seconds={time.monotonic() - begun:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
