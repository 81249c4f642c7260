"""What must hold at every moment, and at the end of each job."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.worker.running import State

#: One statement, so one snapshot. `pruned` names the jobs whose fences were let go.
BROKEN = """
SELECT job_id, coalesce(effects, 0) AS effects, f.state, coalesce(open, 0) AS open_letters, letters, rows
FROM (SELECT job_id, count(*) AS effects FROM ledger GROUP BY job_id) l
FULL JOIN core.processed_jobs f USING (job_id)
LEFT JOIN (SELECT job_id, count(*) AS letters, count(*) FILTER (WHERE resolved_at IS NULL) AS open
           FROM core.dead_letters GROUP BY job_id) d USING (job_id)
LEFT JOIN (SELECT job_id, count(*) AS rows FROM core.inbox GROUP BY job_id) i USING (job_id)
WHERE job_id NOT IN (SELECT job_id FROM pruned) AND (
    coalesce(effects, 0) <> CASE WHEN f.state = 'done' THEN 1 ELSE 0 END
    OR (f.state = 'done' AND open > 0)
    OR (f.state = 'waiting' AND rows IS NULL)
    OR (f.state = 'dead' AND letters IS NULL))
"""


def prepare(state: State) -> None:
    """The table that `BROKEN` asks, and the one that jobs with external effects call."""
    state.sql("CREATE TABLE IF NOT EXISTS calls (job_id text)")
    state.sql("CREATE TABLE IF NOT EXISTS pruned (job_id text PRIMARY KEY)")


class Watch:
    """Looks all the time, over a connection of its own; `broken` has the first that was seen of each job."""

    def __init__(self, url: str, every: float = 0.03) -> None:
        self.state, self.every = State(url), every
        prepare(self.state)
        self.broken: dict[str, str] = {}
        self.looks = 0

    def look(self) -> None:
        """Look once."""
        for row in self.state.sql(BROKEN):
            self.broken.setdefault(row.job_id, _said(row))
        self.looks += 1

    @contextmanager
    def running(self) -> Iterator[Watch]:
        over = threading.Event()
        troubles: list[BaseException] = []

        def watch() -> None:
            try:
                while not over.wait(self.every):
                    self.look()
            except BaseException as error:
                troubles.append(error)

        thread = threading.Thread(target=watch, name="watch")
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()
            self.state.close()
        if troubles:
            raise troubles[0]


def _said(row: object) -> str:
    return ", ".join(f"{name}={value}" for name, value in row._mapping.items())  # type: ignore[attr-defined]
