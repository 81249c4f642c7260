"""A connection on which one operation goes wrong: at its n-th statement, or at its n-th COMMIT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg2
from sqlalchemy import Engine, event

from harness.store.guard import GuardedConnection, GuardedCursor
from tests.machine.laws import Died

GONE = "server closed the connection unexpectedly"


@dataclass
class Plan:
    """What goes wrong in one operation.

    `kind`: "die" (the process is gone before the statement), "lose" (the connection is), "unanswered" (COMMIT is done
    and its answer is lost). `at` counts statements, or for "unanswered" commits, from 0.
    """

    kind: str
    at: int
    fired: bool = False
    at_work: bool = False
    seen: int = 0

    def strikes(self) -> bool:
        """Is it now? Counts."""
        self.seen += 1
        return not self.fired and self.seen == self.at + 1

    def dead(self) -> bool:
        return self.fired and self.kind == "die"


class Faulty(GuardedConnection):
    """Does what `plan` says. Its transaction ends before the connection does, so that nobody waits for its locks."""

    plan: Plan | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cursor_factory = _Cursor

    def first(self, sql: str, parameters: dict[str, Any]) -> Any:
        self.statement()
        return super().first(sql, parameters)

    def commit(self) -> None:
        plan = Faulty.plan
        if plan is not None and plan.kind == "unanswered" and not self.at_work and plan.strikes():
            plan.fired = True
            super().commit()
            self.close()
            raise psycopg2.OperationalError(GONE)
        self.statement()
        super().commit()

    def statement(self) -> None:
        """A statement, or a COMMIT, is about to be sent."""
        plan = Faulty.plan
        if plan is None or plan.kind == "unanswered":
            return
        if plan.dead():
            raise Died
        if plan.strikes():
            plan.fired, plan.at_work = True, self.at_work
            self.at_work = False
            GuardedConnection.rollback(self)
            self.close()
            raise Died if plan.kind == "die" else psycopg2.OperationalError(GONE)


class _Cursor(GuardedCursor):
    def execute(self, query: Any, vars: Any = None) -> None:
        connection: Any = self.connection
        connection.statement()
        super().execute(query, vars)


def install(engine: Engine) -> None:
    """Have `engine` open such connections."""

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, record: Any, cargs: Any, cparams: dict[str, Any]) -> None:
        cparams["connection_factory"] = Faulty
