"""The caller's own connection, on which an enqueue writes: is it one of PostgreSQL, and what do its errors mean?"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy.exc import DBAPIError

from harness.core.errors import TablesUnusable, UsageError
from harness.core.masked import masked
from harness.store.explain import explain


@contextmanager
def explained(session: Any, schema: str) -> Iterator[None]:
    """Raises TablesUnusable where the tables are not there, or not for this role.

    Other errors of the database pass, without the parameters: they are the caller's arguments.
    """
    try:
        yield
    except DBAPIError as error:
        if f"{schema}." not in (error.statement or ""):
            raise  # the session has flushed the caller's own objects before
        error.hide_parameters = True
        if (text := explain(error, _where(session, schema))) is None:
            raise
        raise TablesUnusable(
            f"{text}. Nothing was enqueued. If they are there, the session is one of another database: the jobs have "
            "to be in that of harness_database_url, or its relay will not see them."
        ) from error


def check_dialect(session: Any) -> None:
    """Raise UsageError for a connection of another database system."""
    name = getattr(getattr(_engine(session), "dialect", None), "name", "postgresql")
    if name != "postgresql":
        raise UsageError(
            f"The session is one of {name}, but the inbox is in PostgreSQL: an enqueue is part of a transaction there. "
            "Pass a session of that database, or send the job with .delay() after the commit."
        )


def _where(session: Any, schema: str) -> str:
    url = getattr(_engine(session), "url", None)
    return f"schema {schema!r}" + (f" of {masked(url.render_as_string(hide_password=True))}" if url is not None else "")


def _engine(session: Any) -> Any:
    """Its engine; None where it has several, or none yet."""
    try:
        session = session.registry() if hasattr(session, "registry") else session
        session = getattr(session, "sync_session", session)
        found = session.get_bind() if hasattr(session, "get_bind") else session
        return getattr(found, "engine", found)
    except Exception:
        return None
