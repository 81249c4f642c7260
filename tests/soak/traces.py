"""The database itself keeps what each transaction does to a job, with its commit's time; then that is replayed
against the model: what happened to every job must be a path of it.

Triggers write what they see into a table of the same transaction: what is rolled back leaves no trace. The order is
that of the commits (`track_commit_timestamp`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.model.traces import Seen
from tests.soak.kinds import Kind
from tests.soak.paths import misfit
from tests.worker.running import State

#: What the server must be started with.
SETTINGS = {"track_commit_timestamp": "on"}

_TABLE = """
CREATE TABLE trace (
    seq bigserial PRIMARY KEY, xid xid8 NOT NULL DEFAULT pg_current_xact_id(), job_id text, task text, what text,
    value text
)
"""
#: What is noted of each table, for a row that is there and for one that is deleted. `split_part`: the consumer's task.
_NOTED = {
    "core.processed_jobs": ("split_part({}.consumer, '/', 2)", "fence", "NEW.state", "''"),
    "core.inbox": ("split_part({}.consumer, '/', 2)", "tries", "NEW.attempts::text", "NULL"),
    "core.dead_letters": (
        "split_part({}.consumer, '/', 2)",
        "letter",
        "CASE WHEN NEW.status = 'discarded' THEN 'discarded' WHEN NEW.resolved_at IS NOT NULL THEN 'resolved' "
        "WHEN NEW.status = 'pending_review' THEN 'pending' ELSE 'replayed' END",
        "''",
    ),
    "ledger": ("{}.task", "effect", "'1'", "NULL"),
}


def install(state: State) -> None:
    """Have a migrated database write traces."""
    state.sql(_TABLE)
    for number, (table, (task, what, there, gone)) in enumerate(_NOTED.items()):
        state.sql(
            f"CREATE FUNCTION trace_{number}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF TG_OP = 'DELETE' THEN INSERT INTO trace (job_id, task, what, value) "
            f"VALUES (OLD.job_id, {task.format('OLD')}, '{what}', {gone}); "
            f"ELSE INSERT INTO trace (job_id, task, what, value) "
            f"VALUES (NEW.job_id, {task.format('NEW')}, '{what}', {there}); END IF; RETURN NULL; END $$"
        )
        events = "INSERT" if what == "effect" else "INSERT OR UPDATE OR DELETE"
        state.sql(f"CREATE TRIGGER trace AFTER {events} ON {table} FOR EACH ROW EXECUTE FUNCTION trace_{number}()")


def traces(state: State) -> dict[tuple[str, str], list[Seen]]:
    """By job and task, what stood after each commit that changed it."""
    found: dict[tuple[str, str], list[Seen]] = defaultdict(list)
    for key, changes in _transactions(state):
        before = found[key][-1] if found[key] else Seen()
        after = before
        for what, value in changes:
            match what:
                case "fence":
                    after = after._replace(fence=value or "")
                case "tries":
                    after = after._replace(tries=None if value is None else int(value))
                case "letter":
                    after = after._replace(letter=value or "")
                case _:
                    after = after._replace(effects=after.effects + 1)
        if after != before:
            found[key].append(after)
    return found


def _transactions(state: State) -> Iterator[tuple[tuple[str, str], list[tuple[str, str | None]]]]:
    rows = state.sql(
        "SELECT job_id, task, xid::text AS xid, what, value FROM trace "
        "ORDER BY pg_xact_commit_timestamp(xid::xid), xid, job_id, task, seq"
    )
    last, changes = None, []
    for row in rows:
        if last is not None and last != (row.xid, row.job_id, row.task):
            yield (last[1], last[2]), changes
            changes = []
        last = (row.xid, row.job_id, row.task)
        changes.append((row.what, row.value))
    if last is not None:
        yield (last[1], last[2]), changes


@dataclass
class Checked:
    """`shapes`: how many different traces there were. `misfits` are told with what was seen; `undecided`: too large."""

    jobs: int = 0
    transactions: int = 0
    shapes: int = 0
    misfits: list[str] = field(default_factory=list)
    undecided: Counter[str] = field(default_factory=Counter)

    @property
    def line(self) -> str:
        return (
            f"traces: jobs={self.jobs} transactions={self.transactions} shapes={self.shapes} "
            f"no path of the model={len(self.misfits)} undecided={self.undecided.total()}"
        )


def check(found: dict[tuple[str, str], list[Seen]], kinds: dict[str, Kind]) -> Checked:
    """Hold every trace against the model. `kinds`: of what kind a job is, by its id."""
    checked = Checked(jobs=len(found), transactions=sum(map(len, found.values())))
    answers: dict[tuple[str, tuple[Seen, ...]], int | str | None] = {}
    for (job, task), trace in sorted(found.items()):
        kind = kinds.get(job)
        if kind is None or not trace:
            continue  # a marker of the soak itself
        shape = (kind.name, tuple(trace))
        if shape not in answers:
            answers[shape] = misfit(trace, kind)
        if isinstance(answer := answers[shape], str):
            checked.undecided[answer] += 1
        elif answer is not None:
            checked.misfits.append(f"{job} ({task}): step {answer} of {trace}")
    checked.shapes = len(answers)
    return checked
