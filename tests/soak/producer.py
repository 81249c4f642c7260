"""Sends jobs by a seeded schedule, through connections that break, and notes what it was told."""

from __future__ import annotations

import contextlib
import heapq
import json
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from celery import Celery, chain

from tests.soak.enqueuing import Enqueuing
from tests.soak.foreign import publish
from tests.soak.history import Answer, History
from tests.soak.kinds import Kind, arguments, draw


class Producer:
    """`rate` in jobs a second. `run` is a thread's body."""

    def __init__(self, broker: str, database: str, history: History, seed: int, rate: float) -> None:
        self.app = Celery("producer", broker=broker, set_as_current=False)
        self.app.conf.update(task_default_queue="jobs", task_publish_retry=False, broker_connection_timeout=3)
        if broker.startswith("amqp"):
            self.app.conf.broker_transport_options = {"confirm_publish": True}
        self.history, self.rate = history, rate
        self.dice = random.Random(f"producer {seed}")
        self.enqueuing = Enqueuing(database, history, self.dice)
        self._number = 0
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._connection: Any = None
        self._producer: Any = None

    def run(self, over: threading.Event) -> None:
        while not over.is_set():
            self._send_one()
            while self._later and self._later[0][0] < time.monotonic():
                heapq.heappop(self._later)[2]()
            over.wait(self.dice.expovariate(self.rate))
        for _, _, again in sorted(self._later, key=lambda entry: entry[:2]):
            again()

    def close(self) -> None:
        self._disconnect()
        self.app.close()
        self.enqueuing.close()

    def _send_one(self) -> None:
        kind = draw(self.dice)
        self._number += 1
        job = f"{kind.name.replace(' ', '-')}-{self._number}"
        kwargs = arguments(kind, self.dice)
        if kind.name == "chain":
            self._send_chain(job, kind, kwargs)
        elif kind.door == "enqueue":
            self.enqueuing.put(job, kind, kwargs)
            if kind.name == "enqueue and send":
                self._send(job, kind, kwargs, None)
        elif kind.door == "receive":
            self._as_somebody_else(job, kind, kwargs)
        else:
            countdown = round(self.dice.uniform(0.5, 8.0), 1) if kind.name == "eta" else None
            self._send(job, kind, kwargs, countdown)
        if kind.name == "duplicate":
            self._again(lambda: self._send(job, kind, kwargs, None))
        if kind.name == "received twice":
            self._again(lambda: self._as_somebody_else(job, kind, kwargs))

    def _again(self, send: Callable[[], None]) -> None:
        """Once or twice more, now or later."""
        for _ in range(self.dice.choice((1, 2))):
            when = time.monotonic() + self.dice.choice((0.0, 0.0, 1.0, 8.0))
            self._number += 1
            heapq.heappush(self._later, (when, self._number, send))

    def _as_somebody_else(self, job: str, kind: Kind, kwargs: dict[str, Any]) -> None:
        body = b"<order/>" if kind.name == "received garbage" else json.dumps(kwargs).encode()
        key = f"account {self.dice.randint(1, 3)}" if kwargs["fails"] else None
        self.history.note(job, kind, self._published(lambda producer: publish(producer, job, body, key)))

    def _send(self, job: str, kind: Kind, kwargs: dict[str, Any], countdown: float | None) -> None:
        def send(producer: Any) -> None:
            self.app.send_task(kind.task, kwargs=kwargs, task_id=job, producer=producer, countdown=countdown)

        self.history.note(job, kind, self._published(send))

    def _send_chain(self, job: str, kind: Kind, kwargs: dict[str, Any]) -> None:
        def step(job_id: str, **kwargs: Any) -> Any:
            return self.app.signature("step", kwargs=kwargs, options={"task_id": job_id})

        def send(producer: Any) -> None:
            chain(step(job, **kwargs), step(f"{job}-next")).apply_async(producer=producer)

        answer = self._published(send)
        self.history.note(job, kind, answer)
        self.history.note(f"{job}-next", kind, answer, after=job)

    def _published(self, send: Callable[[Any], None]) -> Answer:
        """Publish once, with the broker's confirm. A connection that can't be had: nothing was said."""
        try:
            if self._producer is None:
                self._connection = self.app.connection_for_write()
                self._connection.ensure_connection(max_retries=1, interval_start=0, timeout=3)
                self._producer = self.app.amqp.Producer(self._connection, auto_declare=False)
        except Exception:
            self._disconnect()
            time.sleep(1.0)  # while nobody takes a job there is little to be learnt from more of them
            return Answer.refused
        try:
            send(self._producer)
        except Exception:
            self._disconnect()
            return Answer.unknown
        return Answer.ok

    def _disconnect(self) -> None:
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.release()
