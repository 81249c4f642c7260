"""A job's gate: the user's function that says whether a letter may be replayed without a person."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from harness.core.errors import HarnessError
from harness.core.message import Message
from harness.core.signature import Signature
from harness.store.database import Database, DatabaseAway
from harness.store.guard import WorkSession

#: Reads the arguments from a message: `(args, kwargs)`; raises what it likes.
Decode = Callable[[Message], tuple[Sequence[Any], Mapping[str, Any]]]
#: Seconds that one statement of a gate may take.
STATEMENT_TIMEOUT = 30


class GateFault(HarnessError):
    """The gate ended the transaction that it was given."""


class Gated(Protocol):
    """What the sweep has to know of a job; `harness.process.JobSpec` is one."""

    @property
    def service(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def consumer(self) -> str: ...
    @property
    def signature(self) -> Signature: ...
    @property
    def can_replay(self) -> Callable[[Session, Mapping[str, Any]], bool] | None: ...
    @property
    def max_replays(self) -> int: ...
    @property
    def max_age(self) -> float: ...


def arguments_of(job: Gated, message: Message, decode: Decode) -> dict[str, Any]:
    """The message's arguments by name, validated as for the handler. Raises where they do not fit it."""
    args, kwargs = decode(message)
    valid_args, valid_kwargs = job.signature.validate(args, kwargs)
    return dict(job.signature.sent.bind(*valid_args, **valid_kwargs).arguments)


@contextmanager
def looking(database: Database) -> Iterator[Session]:
    """A read-only transaction for a gate, always rolled back. Raises DatabaseAway."""
    try:
        connection = database.engine.connect()
    except DBAPIError as error:
        raise DatabaseAway(f"cannot connect: {error.orig}") from error
    with connection:
        session = WorkSession(bind=connection, expire_on_commit=False)
        session.execute(text(f"SET TRANSACTION READ ONLY; SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}s'"))
        raw: Any = connection.connection.dbapi_connection  # asked for now: a connection that has broken has none
        raw.at_work = True
        try:
            yield session
        finally:
            raw.at_work = False
            Session.close(session)


def ask(job: Gated, session: Session, arguments: Mapping[str, Any]) -> bool:
    """What the gate says. Raises what the gate raises, or GateFault."""
    gate = job.can_replay
    if gate is None:
        return False
    answer = gate(session, arguments)
    # Fails where a statement of the gate has failed, too; and what is still to be flushed is refused as any write.
    session.flush()
    read_only = session.scalar(text("SELECT current_setting('transaction_read_only')"))
    if read_only != "on":
        raise GateFault(f"the gate of {job.task} has ended the transaction that it was given to look with")
    return bool(answer)
