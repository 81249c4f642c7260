"""The one statement of every job goes to the driver directly: SQLAlchemy's way there costs more than the statement."""

from typing import Any

import psycopg2
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError


def first_row(connection: Connection, sql: str, parameters: dict[str, Any]) -> Any:
    """Run `sql` on a connection of the harness's engine; its first row or None. Errors are SQLAlchemy's, as always.

    Where there is no transaction yet, the statement begins it in the same round trip.
    """
    raw: Any = connection.connection.dbapi_connection
    try:
        return raw.first(sql, parameters)
    except psycopg2.Error as error:
        dialect: Any = connection.dialect
        lost = dialect.is_disconnect(error, raw, None)
        told = DBAPIError.instance(
            sql,
            parameters,
            error,
            psycopg2.Error,
            hide_parameters=connection.engine.hide_parameters,
            connection_invalidated=lost,
            dialect=dialect,
        )
        if lost:
            connection.invalidate(error)
        raise told from error
