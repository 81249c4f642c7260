"""What PostgreSQL refuses for reasons that are nobody's arguments, in words, with what to do."""

from typing import Any

from sqlalchemy.exc import DBAPIError

#: undefined_table, invalid_schema_name, undefined_column, undefined_function: the tables are not (all) there.
NOT_MIGRATED = ("42P01", "3F000", "42703", "42883")
NO_RIGHT = "42501"


def explain(error: DBAPIError, where: str, app: str = "yourapp", role: str = "ROLE") -> str | None:
    """The sentences; None for an error that is of another kind. `where`: schema and URL, without a password."""
    code = code_of(error)
    if code in NOT_MIGRATED:
        return (
            f"The tables of the harness are not in {where}, or they are older than this release ({first_line(error)}). "
            f"Create or upgrade them: celery -A {app} harness migrate"
        )
    if code == NO_RIGHT:
        return (
            f"The role of this connection may not use the tables of the harness in {where}: {first_line(error)}. "
            f"celery -A {app} harness migrate --grants {role} writes the GRANTs that it needs; their owner runs them"
        )
    return None


def code_of(error: DBAPIError) -> str:
    """The SQLSTATE, whichever driver it is; ''."""
    orig: Any = error.orig
    return str(getattr(orig, "pgcode", None) or getattr(orig, "sqlstate", None) or "")


def first_line(error: DBAPIError) -> str:
    """What the server says, without its details."""
    return (str(error.orig).strip().splitlines() or [type(error.orig).__name__])[0]
