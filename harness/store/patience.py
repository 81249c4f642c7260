"""How a migration waits: briefly, again and again, a bounded number of times, and knowing for whom."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType

import tenacity
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from harness.core.errors import HarnessError
from harness.store.database import AT_ONCE, OWN_ISOLATION, sqlstate

log = logging.getLogger("harness")

#: Any number serves, as long as every release uses the same: two deploys that migrate at once go one after the other.
_LOCK = 7_061_995_114
#: lock_not_available, and the deadlock that two sessions in each other's way end in.
_IN_THE_WAY = ("55P03", *AT_ONCE)
#: Seconds between two looks at who blocks.
_LOOK = 0.2


@dataclass(frozen=True)
class Patience:
    """`lock_timeout`: seconds that a migration waits for a lock, and others behind it. `tries`: how often in all.

    `pause`, `longest_pause`: seconds between two tries, drawn at random from a range that doubles. `turn`: seconds to
    wait for another deploy's migration, behind which nobody else waits.
    """

    lock_timeout: float = 3.0
    tries: int = 5
    pause: float = 2.0
    longest_pause: float = 15.0
    turn: float = 60.0

    @property
    def lock_timeout_ms(self) -> int:
        return max(1, round(self.lock_timeout * 1000))


@dataclass(frozen=True)
class Blocker:
    """A session that a migration waited for. State and times are None where this role may not see them."""

    pid: int
    application_name: str | None
    user: str | None
    state: str | None
    transaction_start: datetime | None
    query_start: datetime | None

    def __str__(self) -> str:
        who = f"pid {self.pid}, application {self.application_name or '(no name)'!r}, user {self.user}"
        if self.state is None:
            return f"{who} (what it does is shown to roles with pg_read_all_stats)"
        return (
            f"{who}, {self.state}, transaction since {_time(self.transaction_start)}, "
            f"last query since {_time(self.query_start)}"
        )


class MigrationBlocked(HarnessError):
    """Another session held a lock for too long; what was under way is rolled back. `blockers`: who."""

    def __init__(self, what: str, patience: Patience, blockers: list[Blocker]) -> None:
        who = "".join(f"\n  {blocker}" for blocker in blockers) or "\n  nobody that could be seen"
        pids = ", ".join(f"pg_terminate_backend({blocker.pid})" for blocker in blockers)
        ending = f", or end it, which rolls its transaction back: SELECT {pids}" if pids else ""
        super().__init__(
            f"{what} is not done: it needs a lock that others held, in each of {patience.tries} tries. Nothing of it "
            f"is left in the database. In its way:{who}\nMigrate again when that session has ended its "
            f"transaction{ending}."
        )
        self.blockers = blockers


def take_turn(connection: Connection, patience: Patience) -> None:
    """Wait for another migration to end, then bound the waits for all other locks of this transaction."""
    set_local = text("SELECT set_config(:name, :value, true)")
    connection.execute(set_local, {"name": "application_name", "value": "harness migrate"})
    connection.execute(set_local, {"name": "lock_timeout", "value": str(round(patience.turn * 1000))})
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    connection.execute(set_local, {"name": "lock_timeout", "value": str(patience.lock_timeout_ms)})


def patiently(engine: Engine, what: str, patience: Patience, once: Callable[[Connection], None]) -> None:
    """Run `once` in a transaction; again, after a pause, where a lock was not to be had. Raises MigrationBlocked."""

    def attempt() -> None:
        # Whatever the database's default: after the wait for another deploy, its migrations must be seen.
        with engine.execution_options(isolation_level=OWN_ISOLATION).begin() as connection:
            watch.pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
            once(connection)

    def say(state: tenacity.RetryCallState) -> None:
        number, blockers = state.attempt_number, "; ".join(map(str, watch.blockers))
        log.warning("%s: try %d of %d: a lock is not to be had: %s", what, number, patience.tries, blockers)

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(_in_the_way),
        wait=tenacity.wait_random_exponential(multiplier=patience.pause, max=patience.longest_pause),
        stop=tenacity.stop_after_attempt(patience.tries),
        before_sleep=say,
        reraise=True,
    )
    with _Watch(engine) as watch:
        try:
            retrying(attempt)
        except DBAPIError as error:
            if not _in_the_way(error):
                raise
            raise MigrationBlocked(what, patience, watch.blockers) from error


def _in_the_way(error: BaseException) -> bool:
    return sqlstate(error) in _IN_THE_WAY


class _Watch:
    """Looks, over a connection of its own, at who blocks the session `pid`: afterwards nobody can tell."""

    def __init__(self, engine: Engine) -> None:
        self.pid = 0
        self.blockers: list[Blocker] = []
        self._engine = engine
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="harness-migrate-watch", daemon=True)

    def __enter__(self) -> "_Watch":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        query = text(
            "SELECT pid, nullif(application_name, ''), usename, state, xact_start, query_start FROM pg_stat_activity"
            " WHERE pid = ANY(pg_blocking_pids(:pid)) ORDER BY xact_start NULLS LAST, pid"
        )
        while not self._stop.wait(_LOOK):
            try:
                with self._engine.connect() as connection:
                    rows = connection.execute(query, {"pid": self.pid}).all()
            except DBAPIError:
                continue  # the migration itself will say what is wrong with the database
            if rows:
                self.blockers = [Blocker(*row) for row in rows]


def _time(moment: datetime | None) -> str:
    return "?" if moment is None else moment.isoformat(sep=" ", timespec="seconds")
