"""Producers: each has keys of its own and enqueues their numbers in order, in transactions of many sizes."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

from celery import Celery
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from harness import Harness, Job


class Producer:
    """What a web process is: its own app, its own connections."""

    def __init__(self, url: str) -> None:
        self.app = Celery("order-producer", broker="memory://", set_as_current=False)
        self.app.conf.update(task_default_queue="jobs")
        self.harness = Harness(self.app, service="tests", database_url=url)
        self.engine = create_engine(make_url(url).set(drivername="postgresql+psycopg2"), pool_size=8)

        @self.harness.job(name="numbered", shared=False)
        def numbered(
            session: Session, job: Job, key: str, number: int, fails: float = 0.0, pause: float = 0.0
        ) -> None: ...

        @self.harness.job(name="dies_and_blocks", shared=False)
        def blocking(session: Session, job: Job, key: str) -> None: ...

        @self.harness.job(name="alone", shared=False)
        def alone(session: Session, job: Job) -> None: ...

        self.alone: Any = alone
        self.numbered: Any = numbered
        self.blocking: Any = blocking

    def call(self, key: str, number: int, **more: float) -> Any:
        call = self.numbered.s(key=key, number=number, **more)
        return call.set(task_id=f"{key}-{number}", ordering_key=key)

    def put(self, session: Session, key: str, number: int, **more: float) -> None:
        self.harness.enqueue(session, self.call(key, number, **more))

    def close(self) -> None:
        self.engine.dispose()
        self.harness.close()


def produce(
    producer: Producer, keys: list[str], each: int, fails: float, seed: int, told: Callable[[int], None]
) -> None:
    """Enqueue `each` jobs for each of `keys`; one transaction in ten is rolled back first, and tried again."""
    dice = random.Random(seed)
    at = dict.fromkeys(keys, 0)
    while at:
        chosen = dice.sample(sorted(at), min(len(at), dice.randint(1, 20)))
        calls = []
        after = dict(at)
        for key in chosen:
            for _ in range(dice.randint(1, 5)):
                if after[key] < each:
                    calls.append(producer.call(key, after[key], fails=fails))
                    after[key] += 1
        with Session(producer.engine) as session:
            producer.harness.enqueue_many(session, calls)
            if dice.random() < 0.1:
                session.rollback()
                continue
            session.commit()
        told(len(calls))
        at = {key: number for key, number in after.items() if number < each}


def start(
    producer: Producer, keys: int, each: int, fails: float, seed: int, told: Callable[[int], None]
) -> list[threading.Thread]:
    """Four of them, in threads."""
    names = [f"key-{number:03}" for number in range(keys)]
    threads = [
        threading.Thread(target=produce, args=(producer, names[part::4], each, fails, seed + part, told))
        for part in range(4)
        if names[part::4]
    ]
    for thread in threads:
        thread.start()
    return threads
