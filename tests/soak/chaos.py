"""What goes wrong, drawn from a seeded schedule: one thing after the other, in the main thread."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.enqueue.conftest import Shop
from tests.services import Service
from tests.soak.place import Place
from tests.worker.running import Worker


class Chaos:
    """`step` does one thing and says which."""

    def __init__(self, place: Place, seed: int) -> None:
        self.place = place
        self.dice = random.Random(f"chaos {seed}")
        self.operator = Shop(place.database_url)
        self.done: Counter[str] = Counter()
        self._things: list[tuple[Callable[[], None], int]] = [
            (self.kill_child, 20),
            (self.kill_worker, 8),
            (self.kill_parent, 3),
            (self.kill_beside, 12),
            (self.deploy, 6),
            (self.freeze, 4),
            (self.cut_database, 10),
            (self.cut_broker, 10),
            (self.lose_answer_to_commit, 8),
            (self.restart_database, 4),
            (self.restart_broker, 4),
            (self.replay, 6),
        ]

    def step(self) -> str:
        things, weights = zip(*self._things, strict=True)
        thing = self.dice.choices(things, weights)[0]
        thing()
        self.done[thing.__name__] += 1
        self.place.revive()
        return str(thing.__name__)

    def close(self) -> None:
        self.operator.close()

    def kill_child(self) -> None:
        worker = self._worker()
        pool = [pid for pid in worker.children() if pid not in self._beside(worker)]
        if pool:
            _kill(self.dice.choice(sorted(pool)))

    def kill_beside(self) -> None:
        """A worker's relay or receiver, or both."""
        beside = self._beside(self._worker())
        for pid in self.dice.sample(beside, self.dice.randint(min(1, len(beside)), len(beside))):
            _kill(pid)

    def kill_worker(self) -> None:
        self._worker().kill()

    def kill_parent(self) -> None:
        """Its children and its relay have to see for themselves that it is gone."""
        worker = self._worker()
        assert worker.process is not None
        _kill(worker.process.pid)
        time.sleep(1)

    def deploy(self) -> None:
        worker = self._worker()
        worker.terminate()
        time.sleep(self.dice.uniform(0, 3))
        worker.stop()

    def freeze(self) -> None:
        """All of a worker, for longer than Redis' visibility time-out: others get its jobs, then it goes on."""
        worker = self._worker()
        assert worker.process is not None
        os.killpg(worker.process.pid, signal.SIGSTOP)
        time.sleep(self.dice.uniform(1, 6))
        os.killpg(worker.process.pid, signal.SIGCONT)

    def cut_database(self) -> None:
        self.place.database_proxy.cut_all()

    def cut_broker(self) -> None:
        self.place.broker_proxy.cut_all()

    def lose_answer_to_commit(self) -> None:
        words = self.dice.choice(("INTO ledger", "INTO core.inbox", "INTO core.dead_letters", "core.inbox"))
        self.place.database_proxy.cut(words, forward=self.dice.random() < 0.5)

    def restart_database(self) -> None:
        self._restart(self.place.postgres)

    def restart_broker(self) -> None:
        self._restart(self.place.server)

    def replay(self) -> None:
        """An operator replays what lies there, also what can't succeed."""
        from harness.replay import replay_many

        here = self.operator.harness
        ids = [row.id for row in self.place.state.sql("SELECT id FROM core.dead_letters WHERE resolved_at IS NULL")]
        self.dice.shuffle(ids)
        replay_many(here.database, here.store, "tests", ids[:5], "operator", here.events)

    def _restart(self, service: Service) -> None:
        self.place.restart(service, kill=self.dice.random() < 0.5, away=self.dice.uniform(0.2, 4))

    def _worker(self) -> Worker:
        return self.dice.choice(self.place.workers)

    def _beside(self, worker: Worker) -> list[int]:
        return [pid for pid in worker.children() if _is_beside(pid)]


def _is_beside(pid: int) -> bool:
    """Relay or receiver? Processes of the pool catch SIGUSR1, by which the soft time limit is raised."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt:"))
    return not caught & (1 << (signal.SIGUSR1 - 1))


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
