"""The handler's transaction is the harness's: what a handler gets refuses to end it, down to the driver.

Effects that are committed before or after the fence's transaction are effects without a fence. And what a handler
leaves in the session (a SET, a lock, a LISTEN) ends with its job: the connection is given up, the next job has another.
"""

from typing import Any, NoReturn

from psycopg2 import Error
from psycopg2.extensions import TRANSACTION_STATUS_IDLE
from psycopg2.extensions import connection as PgConnection
from psycopg2.extensions import cursor as PgCursor
from sqlalchemy.orm import Session, SessionTransaction

from harness.core.errors import TransactionRefused
from harness.store.statements import Does, does

#: in_failed_sql_transaction
IN_FAILED_TRANSACTION = "25P02"


def refuse(what: str) -> NoReturn:
    """Raise TransactionRefused, which says what to do instead."""
    raise TransactionRefused(
        "The handler's transaction belongs to the harness: it commits the effects together with the fence, so the "
        f"handler may not {what}. Leave it out; to undo a part, use `with session.begin_nested():`, to undo all, raise "
        "an exception."
    )


class WorkSession(Session):
    """The session that a handler gets: the harness commits, rolls back and closes it, nobody else."""

    def commit(self) -> NoReturn:
        refuse("commit")

    def rollback(self) -> NoReturn:
        refuse("roll back")

    def begin(self, nested: bool = False) -> SessionTransaction:
        """A savepoint. TransactionRefused without `nested`: the transaction has begun."""
        if not nested:
            refuse("begin a transaction: it is in one. `with session.begin():` around its work is not needed")
        return super().begin(nested=True)

    def close(self) -> NoReturn:
        refuse("close the session")

    def reset(self) -> NoReturn:
        refuse("reset the session")

    def invalidate(self) -> NoReturn:
        refuse("invalidate the session")

    def prepare(self) -> NoReturn:
        refuse("prepare a two-phase commit")


class GuardedCursor(PgCursor):
    """While a handler is at work: refuses the SQL that ends a transaction, and notes what will stay in the session."""

    def execute(self, query: Any, vars: Any = None) -> None:
        connection: Any = self.connection
        if connection.at_work:
            what = does(query if isinstance(query, str) else _text(query, self))
            if what is Does.ends:
                refuse(f"send {_text(query, self).strip()[:60]!r}")
            if what is Does.leaves:
                connection.leaves = True
        try:
            super().execute(query, vars)
        except Error as error:
            connection.note_failed(error)
            raise

    def executemany(self, query: Any, vars_list: Any) -> None:
        try:
            super().executemany(query, vars_list)
        except Error as error:
            self.connection.note_failed(error)  # type: ignore[attr-defined]
            raise


class Failing:
    """Remembers why PostgreSQL has given up the transaction: later statements only say that it has."""

    #: The SQLSTATE and the text of the last statement that failed by its own fault, in this transaction.
    failed: tuple[str, str] | None = None

    def note_failed(self, error: Error) -> None:
        if error.pgcode != IN_FAILED_TRANSACTION:
            self.failed = error.pgcode or "", f"{type(error).__name__}: {str(error).strip()}"


class GuardedConnection(Failing, PgConnection):
    """`at_work`: a handler is running. `ended`: the transaction was rolled back meanwhile, and the fence with it.
    `leaves`: a handler has changed the session, so that nobody else is to get it.

    psycopg2 sends BEGIN as a message of its own. `first()` sends it together with the first statement, which saves
    every job a round trip. psycopg2 knows nothing of such a transaction: it is in its autocommit mode meanwhile, and
    the transaction is ended here, by what the server says of its state.
    """

    at_work = False
    ended = False
    leaves = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cursor_factory = GuardedCursor

    def first(self, sql: str, parameters: dict[str, Any]) -> Any:
        """Run `sql` in the transaction, which it begins if there is none; its first row or None. psycopg2's errors."""
        if self.get_transaction_status() == TRANSACTION_STATUS_IDLE and self.isolation_level is None:
            self.autocommit = True
            sql = "BEGIN; " + sql
        cursor = super().cursor(cursor_factory=PgCursor)
        cursor.execute(sql, parameters)
        return cursor.fetchone()

    def alone(self, sql: str, parameters: dict[str, Any]) -> None:
        """Run `sql` outside of any transaction, committed by itself, in one round trip. psycopg2's errors."""
        self.autocommit = True
        try:
            super().cursor(cursor_factory=PgCursor).execute(sql, parameters)
        finally:
            self._leave_autocommit()

    def cursor(self, name: Any = None, *args: Any, **kwargs: Any) -> Any:
        if name is not None:
            # psycopg2 has cursors with a name in its own transactions only: it sends a BEGIN, which changes nothing.
            self._leave_autocommit()
        return super().cursor(name, *args, **kwargs)

    def lobject(self, *args: Any, **kwargs: Any) -> Any:
        self._leave_autocommit()
        return super().lobject(*args, **kwargs)

    def commit(self) -> None:
        if self.at_work:
            refuse("commit its connection")
        super().commit()
        self._end("COMMIT")

    def rollback(self) -> None:
        # SQLAlchemy rolls back by itself after a failed flush: no wish of the handler, but the end all the same.
        self.ended = True
        super().rollback()
        self._end("ROLLBACK")

    def _end(self, statement: str) -> None:
        """End what psycopg2 has left open because it does not know of it."""
        self.failed = None
        try:
            if self.get_transaction_status() != TRANSACTION_STATUS_IDLE:
                self.autocommit = True
                super().cursor(cursor_factory=PgCursor).execute(statement)
        finally:
            self._leave_autocommit()

    def _leave_autocommit(self) -> None:
        """Statements that come next begin a transaction, or are in one: never committed each on its own."""
        if self.autocommit and not self.closed:
            self.autocommit = False


def _text(query: Any, cursor: Any) -> str:
    if isinstance(query, str):
        return query
    return query.decode(errors="replace") if isinstance(query, bytes) else str(query.as_string(cursor))
