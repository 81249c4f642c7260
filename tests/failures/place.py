"""Where cases happen: a broker and a database of their own on shared servers, and a worker of one side."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

from amqp.exceptions import NotFound
from celery import Celery
from kombu import Connection

from harness import Harness
from tests.failures.case import Case, Send
from tests.services import Databases, Postgres, RabbitMQ, Servers, Service, run_sql
from tests.worker.running import State, Worker, until
from tests.worker.wires import Raw, Wires

QUEUE = "jobs"
_making = threading.Lock()


class FailingWorker(Worker):
    """`celery worker` of tests.failures.app."""

    app = "tests.failures.app"
    #: Seconds; several start at once.
    patience = 150


class Place:
    """`side` is "harness" or "plain", `broker` "rabbitmq" or "redis"; `own` are servers for this place alone."""

    def __init__(
        self, servers: Servers, side: str, broker: str, folder: Path, own: frozenset[str], main: Callable[..., Any]
    ) -> None:
        self.main = main
        self.side, self.broker, self.folder = side, broker, folder
        self._servers, self._own = servers, []
        self.folder.mkdir(parents=True)
        self.server: Service | None = None
        self.postgres: Postgres | None = None
        self.url = self._broker_url(own)
        self.database = self._database_url("database" in own)
        #: As a role that is no superuser, so that limits hold for it.
        self.role = self._role()
        self.state = State(self.database)
        self.state.sql("GRANT ALL ON ledger TO PUBLIC")
        self.state.sql("GRANT ALL ON SEQUENCE ledger_id_seq TO PUBLIC")
        self.deliveries_file = folder / "deliveries"
        self.deliveries_file.touch()
        self.worker: Worker | None = None
        self.case: Case
        self.sent: list[str] = []
        self.extra: dict[str, Any] = {}
        self.sender = self._client()

    @property
    def harness(self) -> bool:
        return self.side == "harness"

    @property
    def amqp(self) -> bool:
        return self.broker == "rabbitmq"

    # -- servers ---------------------------------------------------------------------------------------------------

    def _broker_url(self, own: frozenset[str]) -> str:
        with _making:
            if "broker" not in own:
                return self._servers.rabbitmq_url() if self.amqp else self._servers.redis_url()
        # Looked at every second instead of every minute.
        limit = "{consumer_timeout, 2000}, {channel_tick_interval, 1000}" if "consumer_timeout" in own else ""
        make = (lambda: self._servers.own_rabbitmq(limit)) if self.amqp else self._servers.own_redis
        server: Service = self.main(make)
        self.server = server
        self._own.append(server)
        return server.url

    def _database_url(self, own: bool) -> str:
        if not own:
            with _making:
                return self._servers.databases().make()
        self.postgres = self.main(self._servers.own_postgres)
        self._own.append(self.postgres)
        return Databases(self.postgres.url).make()

    def _role(self) -> str:
        name = f"role_{uuid4().hex}"
        run_sql(self.database, f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
        for kind in ("TABLES", "SEQUENCES"):
            run_sql(self.database, f"GRANT ALL ON ALL {kind} IN SCHEMA core TO {name}")
        run_sql(self.database, f"GRANT USAGE ON SCHEMA core TO {name}")
        parts = urlsplit(self.database)
        self.role_name = name
        host = f"{parts.hostname}:{parts.port}" if parts.hostname else ""
        return f"postgresql://{name}:secret@{host}{parts.path}"

    def close(self) -> None:
        """End the worker and remove what is here."""
        self.stop_worker(kill=True)
        self.sender.close()
        self.state.close()
        if self.postgres is None:
            with _making:
                self._servers.databases().drop(self.database)
                run_sql(self._servers.postgres_url(), f"DROP ROLE IF EXISTS {self.role_name}")
        if self.server is None and self.amqp:
            with _making:
                self._servers.close_rabbitmq_url(self.url)
        for server in self._own:
            self.main(partial(self._servers.discard, server))

    def api(self, method: str, path: str, data: object = None) -> Any:
        """RabbitMQ's management API."""
        server = self.server or self._servers._shared["rabbitmq"]
        assert isinstance(server, RabbitMQ)
        return server.api(method, path, data)

    @property
    def vhost(self) -> str:
        return quote(urlsplit(self.url).path.removeprefix("/"), safe="")

    # -- the worker ------------------------------------------------------------------------------------------------

    def make_worker(self, case: Case, **overrides: Any) -> Worker:
        """The worker of a case, not started."""
        options: dict[str, Any] = {"options": list(case.options), "environment": {}} | overrides
        settings = dict(case.settings) if self.harness else _without_ours(case.settings)
        options["options"] = [self.filled(option) for option in options["options"]]
        options["environment"] = {
            "FAILURES_SIDE": self.side,
            "FAILURES_DELIVERIES": str(self.deliveries_file),
            "FAILURES_SETTINGS": json.dumps(self.filled(settings)),
            "PYTHONWARNINGS": "ignore",
            **case.environment,
            **options["environment"],
        }
        number = len(list(self.folder.glob("worker*.log")))
        broker, database = options.pop("broker", self.url), options.pop("database", self.role)
        return FailingWorker(broker, database, self.folder / f"worker{number}.log", service=self.side, **options)

    def filled(self, value: Any) -> Any:
        """Settings with the places that they name: `{broker}`."""
        if isinstance(value, dict):
            return {key: self.filled(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.filled(inner) for inner in value]
        if not isinstance(value, str):
            return value
        dead = "amqp://guest@127.0.0.1:1//" if self.amqp else "redis://127.0.0.1:1/0"
        known = {"{broker}": self.url, "{dead}": dead, "{file}": str(self.folder / f"{self.case.name}.tried")}
        for name, text in known.items():
            value = value.replace(name, text)
        return value

    def start_worker(self, case: Case, **overrides: Any) -> Worker:
        """Start the worker for this case, unless one is there that can serve it."""
        if self.worker is not None and self.worker.alive and case.shares and not overrides:
            return self.worker
        self.stop_worker()
        self.worker = self.make_worker(case, **overrides)
        self.worker.start()
        return self.worker

    def stop_worker(self, *, kill: bool = False) -> None:
        if self.worker is not None:
            (self.worker.kill if kill and self.worker.process else self.worker.stop)()
        self.worker = None

    # -- sending ---------------------------------------------------------------------------------------------------

    def send(self, one: Send, enqueue: bool = False) -> None:
        """Send it, and remember the ids."""
        for _ in range(one.count):
            job_id = one.ids.replace("{id}", uuid4().hex)
            self.sent.append(job_id)
            for _ in range(one.copies):
                if enqueue and self.harness:
                    self.enqueue(one, job_id)
                elif one.raw is not None:
                    self.send_raw(one, one.raw, job_id)
                else:
                    self.sender.send_task(one.task, kwargs=self.filled(dict(one.kwargs)), task_id=job_id, **one.options)

    def send_raw(self, one: Send, raw: Raw, job_id: str) -> None:
        headers = raw.headers if one.bare else {"task": one.task, "id": job_id, "lang": "py", **raw.headers}
        wires = Wires(self.url, QUEUE)
        try:
            wires.send(Raw(raw.body, headers, raw.content_type, raw.content_encoding, raw.properties))
        finally:
            wires.close()

    def enqueue(self, one: Send, job_id: str) -> None:
        """Through `harness.enqueue`, in a transaction of the producer's."""
        app = self._client()
        made = Harness(app, service="failures", database_url=self.database)

        @made.job(name=one.task, shared=False)
        def job(points: int = 1, pause: float = 0.0) -> None:
            """The worker has the handler."""

        try:
            with made.database.begin() as session:
                made.enqueue(session, job.signature(kwargs=dict(one.kwargs), options=dict(one.options)), job_id=job_id)
        finally:
            made.close()
            app.close()

    def _client(self) -> Celery:
        app = Celery("client", broker=self.url, set_as_current=False)
        app.conf.update(task_default_queue=QUEUE, broker_connection_timeout=5)
        if self.amqp:
            app.conf.broker_transport_options = {"confirm_publish": True}
        return app

    # -- looking ---------------------------------------------------------------------------------------------------

    def deliveries(self) -> int:
        return self.deliveries_file.stat().st_size

    def left(self) -> int:
        """Messages with the broker: ready and, on a Redis-protocol broker, unacknowledged. Raises while it is away."""
        wires = Wires(self.url, QUEUE)
        try:
            return wires.left()
        except NotFound:
            return 0
        finally:
            wires.close()

    def held(self) -> int:
        """Messages with the broker, those in the worker's hands among them; RabbitMQ counts once a second."""
        if not self.amqp:
            return self.left()
        return int(self.api("GET", f"queues/{self.vhost}/{QUEUE}").get("messages", 1))

    def purge(self) -> None:
        """Leave nothing for the next case."""
        with contextlib.suppress(Exception), Connection(self.url) as connection:
            channel: Any = connection.default_channel
            if self.amqp:
                channel.queue_delete(QUEUE)
            else:
                channel.client.flushdb()

    def at_work(self) -> None:
        """Wait until a handler of this place is in the middle of its work: its effect is there, not committed."""
        query = (
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction' "
            "AND query LIKE '%INTO ledger%'"
        )
        until(lambda: self.state.sql(query), 30, "a job is at work")

    def inbox(self) -> int:
        return int(self.state.sql("SELECT count(*) FROM core.inbox")[0][0])

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def pids(self) -> list[int]:
        assert self.worker is not None
        return self.worker.children()


def _without_ours(settings: Any) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if not key.startswith("harness_")}
