"""Servers, proxies before them, and the workers of one soak."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from tests.services import Databases, Servers, Service, Valkey
from tests.soak import traces
from tests.soak.foreign import QUEUE
from tests.sweep.left import Broker
from tests.worker.proxy import Proxy
from tests.worker.running import State, Worker, until

#: Processes in the pool of each worker.
POOLS = (1, 4)


class SoakWorker(Worker):
    app = "tests.soak.app"


def prepare(state: State) -> None:
    """The tables of producer and jobs: orders, what a run of a job with a key saw, and calls to the other side."""
    state.sql("CREATE TABLE orders (job_id text PRIMARY KEY, key text, number int)")
    state.sql("CREATE TABLE order_runs (id bigserial PRIMARY KEY, key text, number int, over int[])")
    state.sql("CREATE TABLE calls (job_id text)")


class Place:
    """Workers and producer reach both servers through proxies; the checker goes straight.

    `forgets`: a Redis-protocol server that writes nothing to its disk.
    """

    def __init__(self, servers: Servers, kind: str, folder: Path, *, forgets: bool = False) -> None:
        self.kind, self.folder, self.forgets = kind, folder, forgets
        #: Workers that were started again.
        self.revived = 0
        self.postgres = servers.own_postgres(**traces.SETTINGS)
        self.server: Service = servers.own_rabbitmq() if kind == "rabbitmq" else servers.own_redis()
        self.database_url = Databases(self.postgres.url).make()
        self.state = State(self.database_url)
        prepare(self.state)
        traces.install(self.state)
        self.broker = Broker.of(self.server)
        self.database_proxy, self.broker_proxy = Proxy(self.database_url), Proxy(self.server.url)
        self.workers = [
            SoakWorker(
                self.broker_proxy.url,
                self.database_proxy.url,
                folder / f"worker{number}.log",
                concurrency=size,
                environment={"CANVAS": "1"},
                harness_outage_hold=10.0,
            )
            for number, size in enumerate(POOLS)
        ]

    def start(self) -> None:
        self._forget()
        for worker in self.workers:
            worker.launch()
        for worker in self.workers:
            what = f"worker ready, see {worker.log}"
            until(lambda worker=worker: worker.has_logged(" ready.") or not worker.alive, 240, what)
            assert worker.alive, worker.text()[-3000:]

    def _forget(self) -> None:
        if self.forgets:
            assert isinstance(self.server, Valkey)
            with self.server.client() as client:
                client.config_set("appendonly", "no")

    def restart(self, service: Service, *, kill: bool, away: float) -> None:
        """End a server, in good order or by force, and start it again after `away` seconds."""
        (service.kill if kill else service.stop)()
        time.sleep(away)
        service.start()
        (self.database_proxy if service is self.postgres else self.broker_proxy).aim(service.url)
        self.broker = Broker.of(self.server)
        if service is self.server:
            self._forget()

    def revive(self) -> int:
        """Start again whatever worker has ended, without waiting for it; returns how many."""
        dead = [worker for worker in self.workers if not worker.alive]
        for worker in dead:
            with contextlib.suppress(AssertionError):
                worker.kill()
            worker.launch()
        self.revived += len(dead)
        return len(dead)

    def left(self) -> int:
        """Messages with the broker, delivered or not."""
        return self.broker.left("jobs") + self.broker.left(QUEUE)

    def close(self) -> None:
        for worker in self.workers:
            if worker.process is not None:
                worker.kill()
        self.state.close()
        for proxy in (self.database_proxy, self.broker_proxy):
            proxy.cut_all()
            proxy.close()
