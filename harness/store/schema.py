"""The shape of the tables, for any schema name. The migrations create the same; a test proves the two equal."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Sequence,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
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


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one schema."""

    metadata: MetaData
    processed_jobs: Table
    inbox: Table
    dead_letters: Table
    audit_log: Table
    audit_seals: Table
    presence: Table
    order_places: Table


def check_schema_name(schema: str) -> str:
    """Return `schema`, or raise ConfigError: it is written into SQL, so only plain lower-case names pass."""
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
        raise ConfigError(
            f"harness_schema = {schema!r} is not a plain PostgreSQL name. "
            "Use lower-case letters, digits and underscores, for example 'core'."
        )
    return schema


def _one_of(column: str, values: tuple[str, ...] | type[Reason]) -> str:
    return f"{column} IN ({', '.join(repr(str(value)) for value in values)})"


def _now(name: str) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=False, server_default=text("now()"))


def _message_columns() -> list[Column[object]]:
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


@lru_cache
def tables_of(schema: str) -> Tables:
    """Build the tables of `schema`."""
    metadata = MetaData(schema=check_schema_name(schema), naming_convention=NAMING)
    generation = Sequence("inbox_generation", metadata=metadata, schema=schema)
    processed_jobs = Table(
        "processed_jobs",
        metadata,
        Column("job_id", Text),
        Column("consumer", Text),
        Column("state", Text, nullable=False),
        _now("processed_at"),
        Column("digest", LargeBinary),
        Column("result", LargeBinary),
        PrimaryKeyConstraint("job_id", "consumer"),
        CheckConstraint(_one_of("state", FENCE_STATES), name="state"),
    )
    inbox = Table(
        "inbox",
        metadata,
        Column("id", BigInteger, Identity(always=True)),
        Column("service", Text, nullable=False),
        Column("consumer", Text, nullable=False),
        Column("task", Text, nullable=False),
        Column("job_id", Text, nullable=False),
        *_message_columns(),
        Column("digest", LargeBinary),
        Column("xid", XID8, nullable=False, server_default=text("pg_current_xact_id()")),
        _now("available_at"),
        Column("expires_at", DateTime(timezone=True)),
        Column("attempts", Integer, nullable=False, server_default=text("0")),
        Column("deliveries", Integer, nullable=False, server_default=text("0")),
        Column("dispatches", Integer, nullable=False, server_default=text("0")),
        Column("generation", BigInteger, nullable=False, server_default=text("0")),
        Column("leased_until", DateTime(timezone=True)),
        Column("failures", JSONB, nullable=False, server_default=text("'[]'::jsonb")),
        Column("letter_id", BigInteger),
        Column("relay_error", Text),
        _now("created_at"),
        PrimaryKeyConstraint("id"),
        UniqueConstraint("consumer", "job_id"),
        CheckConstraint("attempts >= 0 AND deliveries >= 0 AND dispatches >= 0", name="counts"),
        info={"generation": generation},
    )
    Index("inbox_due_idx", inbox.c.service, text(DUE), _table=inbox)
    Index(
        "inbox_lanes_idx",
        inbox.c.service,
        text(PRIORITY_CLASS),
        inbox.c.consumer,
        text("coalesce(tenant, '')"),
        text(DUE),
        _table=inbox,
    )
    Index("inbox_in_flight_idx", inbox.c.service, inbox.c.consumer, postgresql_where=text(IN_FLIGHT))
    Index(
        "inbox_turn_idx",
        inbox.c.service,
        inbox.c.ordering_key,
        inbox.c.xid,
        inbox.c.sequence,
        postgresql_where=text("sequence IS NOT NULL"),
    )
    Index(
        "inbox_turn_taken_idx",
        inbox.c.service,
        inbox.c.ordering_key,
        postgresql_where=text(f"{IN_FLIGHT} AND sequence IS NOT NULL"),
    )
    dead_letters = Table(
        "dead_letters",
        metadata,
        Column("id", BigInteger, Identity(always=True)),
        Column("service", Text, nullable=False),
        Column("consumer", Text, nullable=False),
        Column("task", Text, nullable=False),
        Column("job_id", Text, nullable=False),
        *_message_columns(),
        Column("digest", LargeBinary),
        Column("payload", JSONB),
        Column("reason", Text, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("deliveries", Integer, nullable=False, server_default=text("0")),
        Column("error_type", Text, nullable=False),
        Column("error_message", Text, nullable=False),
        Column("traceback", Text, nullable=False),
        Column("fingerprint", Text, nullable=False),
        Column("failures", JSONB, nullable=False),
        Column("status", Text, nullable=False, server_default=text("'pending_review'")),
        Column("reviewer", Text),
        Column("reviewed_at", DateTime(timezone=True)),
        Column("discard_reason", Text),
        Column("replays", Integer, nullable=False, server_default=text("0")),
        Column("lineage", JSONB, nullable=False, server_default=text("'[]'::jsonb")),
        Column("surfaced", Text),
        Column("alerted_at", DateTime(timezone=True)),
        Column("resolved_at", DateTime(timezone=True)),
        _now("created_at"),
        _now("updated_at"),
        PrimaryKeyConstraint("id"),
        CheckConstraint(_one_of("reason", Reason), name="reason"),
        CheckConstraint(_one_of("status", LETTER_STATUSES), name="status"),
        CheckConstraint(
            "status <> 'discarded' OR (discard_reason IS NOT NULL AND discard_reason ~ '[^[:space:]]' "
            "AND reviewer IS NOT NULL AND resolved_at IS NOT NULL)",
            name="discard",
        ),
        CheckConstraint("status <> 'pending_review' OR resolved_at IS NULL", name="resolved"),
    )
    Index(
        "dead_letters_open_key",
        dead_letters.c.consumer,
        dead_letters.c.job_id,
        unique=True,
        postgresql_where=text("resolved_at IS NULL"),
    )
    Index("dead_letters_service_idx", dead_letters.c.service, dead_letters.c.status, dead_letters.c.id)
    audit_log = Table(
        "audit_log",
        metadata,
        Column("id", BigInteger, Identity(always=True)),
        Column("at", DateTime(timezone=True), nullable=False, server_default=text("clock_timestamp()")),
        Column("service", Text, nullable=False),
        Column("actor", Text, nullable=False),
        Column("action", Text, nullable=False),
        Column("letter_id", BigInteger, nullable=False),
        Column("consumer", Text, nullable=False),
        Column("job_id", Text, nullable=False),
        Column("reason", Text),
        Column("details", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
        PrimaryKeyConstraint("id"),
    )
    Index("audit_log_letter_idx", audit_log.c.letter_id)
    audit_seals = Table(
        "audit_seals",
        metadata,
        Column("id", BigInteger, Identity(always=True)),
        Column("first_id", BigInteger, nullable=False),
        Column("last_id", BigInteger, nullable=False),
        Column("previous", LargeBinary),
        Column("hash", LargeBinary, nullable=False),
        _now("sealed_at"),
        PrimaryKeyConstraint("id"),
        UniqueConstraint("last_id"),
    )
    presence = Table(
        "presence",
        metadata,
        Column("service", Text),
        Column("role", Text),
        Column("name", Text),
        _now("seen_at"),
        PrimaryKeyConstraint("service", "role", "name"),
    )
    order_places = Table(
        "order_places",
        metadata,
        Column("letter_id", BigInteger, autoincrement=False),
        Column("service", Text, nullable=False),
        Column("ordering_key", Text, nullable=False),
        Column("xid", XID8, nullable=False),
        Column("sequence", BigInteger, nullable=False),
        Column("blocks", Boolean, nullable=False),
        PrimaryKeyConstraint("letter_id"),
    )
    Index(
        "order_places_blocks_idx",
        order_places.c.service,
        order_places.c.ordering_key,
        order_places.c.xid,
        order_places.c.sequence,
        postgresql_where=text("blocks"),
    )
    return Tables(metadata, processed_jobs, inbox, dead_letters, audit_log, audit_seals, presence, order_places)
