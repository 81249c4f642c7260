"""Enqueues jobs in transactions of its own, through connections that break: both the order and its job, or neither."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from harness import Job
from tests.enqueue.conftest import Shop
from tests.soak.history import Answer, History
from tests.soak.kinds import KEYS, KINDS, Kind

ORDER = "INSERT INTO orders (job_id, key, number) VALUES (:id, :key, :number)"
PARENT = next(kind for kind in KINDS if kind.name == "enqueue")


class Enqueuing:
    """The producer's own rows are its `orders`: what is there must have its job, and what is not must have none."""

    def __init__(self, database: str, history: History, dice: random.Random) -> None:
        self.shop, self.history, self.dice = Shop(database), history, dice
        self._numbers: Counter[str] = Counter()
        job = self.shop.harness.job

        @job(name="keyed", shared=False)
        def keyed(session: Session, job: Job, key: str, number: int, how: str = "") -> None: ...

        @job(name="outside", shared=False)
        def outside(session: Session, job: Job, how: str = "") -> None: ...

        @job(name="waits", shared=False)
        def waits(session: Session, job: Job, parent: str) -> None: ...

        self._tasks: dict[str, Any] = {task.name: task for task in (self.shop.credit, keyed, outside, waits)}

    def put(self, job: str, kind: Kind, kwargs: dict[str, Any]) -> None:
        """One transaction; notes what was said of it."""
        key = self.dice.choice(KEYS) if kind.keyed else None
        delay = round(self.dice.uniform(0.5, 5.0), 1) if kind.name == "enqueue for later" else None
        answer, parent = Answer.refused, f"{job}-parent"
        if key is not None:
            # Never used again: whatever becomes of this transaction, it comes before the next one of its key.
            self._numbers[key] += 1
            kwargs = kwargs | {"key": key, "number": self._numbers[key]}
        if kind.name == "enqueue not ready":
            kwargs = kwargs | {"parent": parent}
        try:
            with self.shop.session() as session:
                self._one(session, job, kind, kwargs, key, delay)
                if kind.name == "enqueue not ready":
                    self._one(session, parent, PARENT, {}, None, round(self.dice.uniform(0.5, 3.0), 1))
                if kind.name.endswith("and roll back"):
                    session.rollback()
                else:
                    answer = Answer.unknown
                    session.commit()
                    answer = Answer.ok
        except Exception:
            with contextlib.suppress(Exception):
                self.shop.engine.dispose()
        self.history.note(job, kind, answer)
        if kind.name == "enqueue not ready":
            self.history.note(parent, PARENT, answer)

    def _one(
        self, session: Session, job: str, kind: Kind, kwargs: dict[str, Any], key: str | None, delay: float | None
    ) -> None:
        session.execute(text(ORDER), {"id": job, "key": key, "number": kwargs.get("number")})
        call = self._tasks[kind.task].s(**kwargs)
        self.shop.harness.enqueue(session, call, job_id=job, delay=delay, ordering_key=key)

    def close(self) -> None:
        self.shop.close()
