"""Checks the history against the tables, in the style of Jepsen: what was acknowledged must be there, once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.soak.history import Answer, Entry, History
from tests.worker.running import State

#: Everything that the tables say of each job, as one snapshot.
ALL = """
SELECT job_id, coalesce(effects, 0) AS effects, f.state, coalesce(open, 0) AS open, reason,
    i.job_id IS NOT NULL AS waits, o.job_id IS NOT NULL AS ordered, coalesce(calls, 0) AS calls,
    coalesce(replays, 0) AS replays
FROM (SELECT job_id, count(*) AS effects FROM ledger GROUP BY job_id) l
FULL JOIN (SELECT job_id, state FROM core.processed_jobs) f USING (job_id)
FULL JOIN (SELECT job_id, count(*) FILTER (WHERE resolved_at IS NULL) AS open, max(reason) AS reason,
               sum(replays) AS replays
           FROM core.dead_letters GROUP BY job_id) d USING (job_id)
FULL JOIN (SELECT job_id FROM core.inbox) i USING (job_id)
FULL JOIN (SELECT job_id FROM orders) o USING (job_id)
FULL JOIN (SELECT job_id, count(*) AS calls FROM calls GROUP BY job_id) c USING (job_id)
"""
#: Runs of jobs with a key that began before the turn of an older one of their key was over.
OUT_OF_ORDER = """
SELECT r.key, r.number, array(
    SELECT o.number FROM orders o WHERE o.key = r.key AND o.number < r.number AND o.number <> ALL (r.over) ORDER BY 1
) AS before FROM order_runs r
WHERE EXISTS (SELECT FROM orders o WHERE o.key = r.key AND o.number < r.number AND o.number <> ALL (r.over))
ORDER BY r.id
"""


@dataclass
class Verdict:
    """What a soak has found; each list names jobs with what was seen of them.

    `jobs` are those that were taken, for certain or perhaps; what was refused or rolled back is checked as well.
    """

    jobs: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    #: Runs that began out of the order of their key.
    violations: list[str] = field(default_factory=list)
    #: Jobs that should have succeeded and became letters, by reason.
    given_up: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)

    @property
    def line(self) -> str:
        return f"soak: jobs={self.jobs} lost={len(self.lost)} doubled={len(self.doubled)} stuck={len(self.stuck)}"

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.stuck or self.violations)


def unsettled(history: History, state: State) -> list[str]:
    """The jobs that must still come to an end."""
    rows = {row.job_id: row for row in state.sql(ALL)}
    open_ = [job for job, row in rows.items() if row.waits or row.state == "waiting"]
    return open_ + [one.job for one in history.entries.values() if _must_be(one, rows) and not _is(rows.get(one.job))]


def check(history: History, state: State) -> Verdict:
    """Hold the history against the tables, at rest."""
    rows = {row.job_id: row for row in state.sql(ALL)}
    taken = [entry for entry in history.entries.values() if entry.answer is not Answer.refused]
    verdict = Verdict(jobs=len(taken))
    for entry in history.entries.values():
        _judge(entry, rows, verdict)
    for job in rows.keys() - history.entries.keys():
        verdict.doubled.append(f"{job}: nobody has sent it: {_said(rows[job])}")
    verdict.violations = [
        f"{row.key}: number {row.number} ran before {', '.join(map(str, row.before))} had ended"
        for row in state.sql(OUT_OF_ORDER)
    ]
    return verdict


def _judge(entry: Entry, rows: dict[str, Any], verdict: Verdict) -> None:
    row = rows.get(entry.job)
    said = f"{entry.job} ({entry.kind.name}, {entry.answer}): {_said(row)}"
    if row is None or not _is(row):
        if row is not None and (row.state is not None or row.waits):
            verdict.stuck.append(said)
        elif _must_be(entry, rows):
            verdict.lost.append(said)
        verdict.ends[f"nothing, was {entry.answer}"] += 1
        return
    if not _may_be(entry, row):
        verdict.doubled.append(f"{said}; it was rolled back, or never sent")
    if row.effects > 1 or (row.effects and row.open) or row.open > 1 or row.effects != int(row.state == "done"):
        verdict.doubled.append(said)
    elif row.waits:
        verdict.stuck.append(said)
    if entry.kind.task == "outside":
        _judge_calls(said, row, verdict)
    end = "one effect" if row.effects else "a letter"
    verdict.ends[end] += 1
    if row.open and entry.kind.good:
        verdict.given_up[str(row.reason)] += 1
    if row.effects and not entry.kind.good:
        verdict.doubled.append(f"{said}; it can't have an effect")


def _judge_calls(said: str, row: Any, verdict: Verdict) -> None:
    """One call for each word: the first, and each replay by a person. None, and an effect: it was never called."""
    if row.calls > 1 + row.replays or (row.effects and not row.calls):
        verdict.doubled.append(f"{said}; called {row.calls} times, replayed {row.replays} times")


def _is(row: Any) -> bool:
    """Has the job one effect or an open letter?"""
    return row is not None and bool(row.effects or row.open)


def _must_be(entry: Entry, rows: dict[str, Any]) -> bool:
    if entry.after is not None:
        lead = rows.get(entry.after)
        return lead is not None and bool(lead.effects)
    row = rows.get(entry.job)
    return entry.answer is Answer.ok or (row is not None and bool(row.ordered))


def _may_be(entry: Entry, row: Any) -> bool:
    """Not where the producer's own transaction is not there, and nothing was sent beside it."""
    if entry.kind.door != "enqueue":
        return True
    return bool(row.ordered) or entry.kind.name == "enqueue and send"


def _said(row: Any) -> str:
    if row is None:
        return "no trace"
    return (
        f"effects {row.effects}, fence {row.state}, open letters {row.open} ({row.reason}), "
        f"inbox row {row.waits}, order {row.ordered}"
    )
