"""What the tables are made of: types, names, words, and the columns that hold a message."""

import re
from typing import Any

from sqlalchemy import BigInteger, Column, DateTime, LargeBinary, SmallInteger, Text, text
from sqlalchemy.types import UserDefinedType

from harness.core.errors import ConfigError
from harness.core.reason import Reason

NAMING = {
    "pk": "%(table_name)s_pkey",
    "uq": "%(table_name)s_%(column_0_N_name)s_key",
    "ck": "%(table_name)s_%(constraint_name)s_check",
    "ix": "%(table_name)s_%(column_0_N_name)s_idx",
}

FENCE_STATES = ("done", "waiting", "dead", "claimed")
#: Priorities are whatever a producer sent; the relay tells ten of them apart.
PRIORITY_CLASS = "least(greatest(priority, 0), 9)"
DUE = "coalesce(leased_until, available_at)"
#: With a `relay_error` the row was not sent: until `leased_until` the relay only leaves it alone.
IN_FLIGHT = "leased_until IS NOT NULL AND relay_error IS NULL"
LETTER_STATUSES = ("pending_review", "replayed", "discarded")


class XID8(UserDefinedType[int]):
    """PostgreSQL's 64-bit transaction id."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        return "xid8"

    def bind_processor(self, dialect: Any) -> Any:
        # As text: PostgreSQL has no cast from its own integers.
        return lambda value: None if value is None else str(value)

    def result_processor(self, dialect: Any, coltype: object) -> Any:
        return lambda value: None if value is None else int(value)


def check_schema_name(schema: str) -> str:
    """Return `schema`, or raise ConfigError: it is written into SQL, so only plain lower-case names pass."""
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
        raise ConfigError(
            f"harness_schema = {schema!r} is not a plain PostgreSQL name. "
            "Use lower-case letters, digits and underscores, for example 'core'."
        )
    return schema


def one_of(column: str, values: tuple[str, ...] | type[Reason]) -> str:
    """The condition of a CHECK: one of these words."""
    return f"{column} IN ({', '.join(repr(str(value)) for value in values)})"


def now(name: str) -> Column[object]:
    """A time that is the transaction's where nobody says another."""
    return Column(name, DateTime(timezone=True), nullable=False, server_default=text("now()"))


def message_columns() -> list[Column[object]]:
    """The exact message: what a replay sends again, byte for byte (`jsonb` keeps neither NUL nor NaN)."""
    return [
        Column("body", LargeBinary, nullable=False),
        Column("content_type", Text),
        Column("content_encoding", Text),
        Column("headers", LargeBinary, nullable=False),
        Column("properties", LargeBinary, nullable=False),
        Column("queue", Text, nullable=False),
        Column("ordering_key", Text),
        Column("sequence", BigInteger),
        Column("tenant", Text),
        Column("priority", SmallInteger, nullable=False, server_default=text("0")),
        Column("correlation_id", Text),
    ]
