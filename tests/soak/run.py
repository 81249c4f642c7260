"""One soak: load and chaos for some minutes, then quiet, then the ledger is checked."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.enqueue.conftest import Shop
from tests.services import Servers
from tests.soak import traces
from tests.soak.chaos import Chaos
from tests.soak.history import History
from tests.soak.ledger import Verdict, check, unsettled
from tests.soak.place import Place
from tests.soak.producer import Producer
from tests.soak.traces import Checked
from tests.worker.running import until

#: Seconds without one more job's end, when all is well again, after which what is left is stuck; and the longest wait.
QUIET, LONGEST = 90.0, 900.0
#: Seconds without anything on its way before all is at rest: RabbitMQ counts what is unacknowledged once a second.
AT_REST = 3.0


@dataclass
class Soak:
    """What came of it. `chaos` says how often which thing went wrong."""

    verdict: Verdict
    chaos: dict[str, int]
    operations: int
    #: Runs of jobs with a key, each of which has looked whether it is its turn.
    ordered_runs: int
    #: What happened to each job, held against the model.
    traces: Checked


def soak(
    servers: Servers,
    kind: str,
    folder: Path,
    *,
    seconds: float,
    seed: int,
    rate: float = 5.0,
    least: int = 0,
    strikes: int = 0,
    tell: Callable[[str], None] = lambda line: None,
) -> Soak:
    """Run it. From the main thread, for it starts servers. `rate`: jobs a second.

    However slow the machine is, it goes on until `least` jobs were not refused, and `strikes` times something broke.
    """
    place = Place(servers, kind, folder)
    history = History(folder / "history.jsonl")
    over = threading.Event()
    try:
        place.start()
        producer = Producer(place.broker_proxy.url, place.database_proxy.url, history, seed, rate)
        chaos = Chaos(place, seed)
        load = threading.Thread(target=producer.run, args=(over,), name="producer")
        load.start()
        try:
            _torment(chaos, random.Random(f"pauses {seed}"), seconds, strikes, history, tell)
            until(lambda: history.taken() >= least, 120, f"{least} jobs are taken")
        finally:
            over.set()
            load.join()
            producer.close()
        settle(place, history, tell)
        replay_all(place, tell)
        settle(place, history, tell)
        verdict = check(history, place.state)
        nothing_left(place, verdict)
        chaos.close()
        tell("holding what happened to each job against the model")
        kinds = {entry.job: entry.kind for entry in history.entries.values()}
        checked = traces.check(traces.traces(place.state), kinds)
        runs = int(place.state.sql("SELECT count(*) FROM order_runs")[0][0])
        return Soak(verdict, dict(chaos.done), history.operations, runs, checked)
    finally:
        history.close()
        place.close()


def _torment(
    chaos: Chaos, dice: random.Random, seconds: float, strikes: int, history: History, tell: Callable[[str], None]
) -> None:
    began = time.monotonic()
    struck = 0
    while (passed := time.monotonic() - began) < seconds or struck < strikes:
        time.sleep(min(dice.uniform(0.2, 3.0), max(seconds - passed, 0.0)))
        tell(f"{passed:5.0f} s  {len(history.entries):6} jobs  {chaos.step()}")
        struck += 1


def settle(place: Place, history: History, tell: Callable[[str], None]) -> None:
    """Wait until nothing is on its way; what is not at rest by then is stuck, and found by the check."""
    began = progress = time.monotonic()
    said, fewest = 0.0, len(history.entries) + 1
    rests: float | None = None
    while True:
        now = time.monotonic()
        open_ = unsettled(history, place.state)
        rests = None if open_ or place.left() else rests or now
        if rests is not None and now - rests > AT_REST:
            return
        place.revive()
        if len(open_) < fewest:
            fewest, progress = len(open_), now
        if now - progress > QUIET or now - began > LONGEST:
            return
        if now - said > 5:
            said = now
            which = f": {', '.join(open_)}" if 0 < len(open_) <= 5 else ""
            tell(f"quiet: {len(open_)} jobs are still to end{which}")
        time.sleep(0.3)


def replay_all(place: Place, tell: Callable[[str], None]) -> None:
    """As an operator who has mended what was wrong: the letters of jobs that their worker's death has made."""
    from harness.replay import replay_many

    shop = Shop(place.database_url)
    query = "SELECT id FROM core.dead_letters WHERE resolved_at IS NULL AND reason = 'crashed' AND job_id NOT LIKE :bad"
    ids = [row.id for row in place.state.sql(query, bad="crash-for-ever%")]
    if ids:
        here = shop.harness
        tell(f"replayed: {replay_many(here.database, here.store, 'tests', ids, 'operator', here.events)}")
    shop.close()


def nothing_left(place: Place, verdict: Verdict) -> None:
    """Stop every worker; what they held comes back into the queue, where it is counted."""
    for worker in place.workers:
        worker.terminate()
    for worker in place.workers:
        worker.stop()
    if left := place.left():
        verdict.stuck.append(f"{left} messages with the broker")
