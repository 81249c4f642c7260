"""Servers are ended and started again under load of every kind; then each job is accounted for.

Nobody helps meanwhile: no worker is started again, nothing is sent again. The load is the soak's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.services import Servers, Service
from tests.soak import traces
from tests.soak.history import History
from tests.soak.ledger import Verdict, check
from tests.soak.place import Place
from tests.soak.producer import Producer
from tests.soak.run import nothing_left, replay_all, settle
from tests.soak.traces import Checked
from tests.worker.running import until

#: The jobs of which one must come to its effect after each restart: sent, with a key, external, received.
KINDS = ("credit", "keyed", "outside", "taken")
#: Seconds within which each of them must.
RESUMES = 90.0


class Restart(NamedTuple):
    """`server`: "database" or "broker". `kill`: by SIGKILL, else in good order. `away`: seconds in between."""

    server: str
    kill: bool = True
    away: float = 1.0

    def __str__(self) -> str:
        return f"{self.server} {'killed' if self.kill else 'stopped'}, {self.away:g} s away"


@dataclass
class Restarted:
    """What came of it. `resumed`: seconds until each kind of job had an effect again, after each restart."""

    verdict: Verdict
    traces: Checked
    forgotten: int
    #: Workers that were found dead.
    dead: int
    resumed: list[float] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.verdict.good and not self.traces.misfits and not self.dead


def restarts(
    servers: Servers,
    kind: str,
    folder: Path,
    plan: Sequence[Restart],
    *,
    seed: int,
    rate: float = 8.0,
    load: float = 3.0,
    least: int = 0,
    forgets: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Restarted:
    """Go through `plan`, with `load` seconds of work before each restart. From the main thread, for it starts servers.

    `rate`: jobs a second. `least`: the load goes on until so many jobs were not refused. `forgets`: the broker, a
    Redis-protocol server, keeps nothing on its disk; what was sent to it, and is in no inbox, may then be lost.
    """
    place = Place(servers, kind, folder, forgets=forgets)
    history = History(folder / "history.jsonl")
    over = threading.Event()
    resumed: list[float] = []
    try:
        place.start()
        producer = Producer(place.broker_proxy.url, place.database_proxy.url, history, seed, rate)
        thread = threading.Thread(target=producer.run, args=(over,), name="producer")
        thread.start()
        try:
            for restart in plan:
                time.sleep(load)
                resumed.append(_restart(place, restart))
                if forgets and restart.server == "broker":
                    history.doubt()
                tell(f"{restart}: each kind of job has an effect again after {resumed[-1]:.1f} s")
            until(lambda: history.taken() >= least, 120, f"{least} jobs are taken")
        finally:
            over.set()
            thread.join()
            producer.close()
        settle(place, history, tell)
        replay_all(place, tell)
        settle(place, history, tell)
        verdict = check(history, place.state)
        nothing_left(place, verdict)
        kinds = {entry.job: entry.kind for entry in history.entries.values()}
        checked = traces.check(traces.traces(place.state), kinds)
        forgotten = verdict.ends["nothing, was unknown"]
        return Restarted(verdict, checked, forgotten, place.revived, resumed)
    finally:
        history.close()
        place.close()


def _restart(place: Place, restart: Restart) -> float:
    service: Service = place.postgres if restart.server == "database" else place.server
    place.restart(service, kill=restart.kill, away=restart.away)
    began = time.monotonic()
    last = place.state.sql("SELECT coalesce(max(id), 0) FROM ledger")[0][0]

    def resumed() -> bool:
        rows = place.state.sql("SELECT DISTINCT task FROM ledger WHERE id > :last", last=last)
        return {row.task for row in rows} >= {*KINDS}

    until(resumed, RESUMES, f"{KINDS} have effects again")
    return time.monotonic() - began
