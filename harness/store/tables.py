"""The tables, each in a function that adds it to a schema's metadata."""

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
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from harness.core.reason import Reason
from harness.store.columns import (
    DUE,
    FENCE_STATES,
    IN_FLIGHT,
    LETTER_STATUSES,
    PRIORITY_CLASS,
    XID8,
    message_columns,
    now,
    one_of,
)


def processed_jobs(metadata: MetaData) -> Table:
    """The fence: one row for each job and consumer."""
    return Table(
        "processed_jobs",
        metadata,
        Column("job_id", Text),
        Column("consumer", Text),
        Column("state", Text, nullable=False),
        now("processed_at"),
        Column("digest", LargeBinary),
        Column("result", LargeBinary),
        PrimaryKeyConstraint("job_id", "consumer"),
        CheckConstraint(one_of("state", FENCE_STATES), name="state"),
    )


def inbox(metadata: MetaData, generation: Sequence) -> Table:
    """Jobs that wait, or are in trouble, each with its exact message."""
    table = Table(
        "inbox",
        metadata,
        Column("id", BigInteger, Identity(always=True)),
        Column("service", Text, nullable=False),
        Column("consumer", Text, nullable=False),
        Column("task", Text, nullable=False),
        Column("job_id", Text, nullable=False),
        *message_columns(),
        Column("digest", LargeBinary),
        Column("xid", XID8, nullable=False, server_default=text("pg_current_xact_id()")),
        now("available_at"),
        Column("expires_at", DateTime(timezone=True)),
        Column("attempts", Integer, nullable=False, server_default=text("0")),
        Column("deliveries", Integer, nullable=False, server_default=text("0")),
        Column("dispatches", Integer, nullable=False, server_default=text("0")),
        Column("generation", BigInteger, nullable=False, server_default=text("0")),
        Column("leased_until", DateTime(timezone=True)),
        Column("failures", JSONB, nullable=False, server_default=text("'[]'::jsonb")),
        Column("letter_id", BigInteger),
        Column("relay_error", Text),
        now("created_at"),
        PrimaryKeyConstraint("id"),
        UniqueConstraint("consumer", "job_id"),
        CheckConstraint("attempts >= 0 AND deliveries >= 0 AND dispatches >= 0", name="counts"),
        info={"generation": generation},
    )
    Index("inbox_due_idx", table.c.service, text(DUE), _table=table)
    Index(
        "inbox_lanes_idx",
        table.c.service,
        text(PRIORITY_CLASS),
        table.c.consumer,
        text("coalesce(tenant, '')"),
        text(DUE),
        _table=table,
    )
    Index("inbox_in_flight_idx", table.c.service, table.c.consumer, postgresql_where=text(IN_FLIGHT))
    Index(
        "inbox_turn_idx",
        table.c.service,
        table.c.ordering_key,
        table.c.xid,
        table.c.sequence,
        postgresql_where=text("sequence IS NOT NULL"),
    )
    Index(
        "inbox_turn_taken_idx",
        table.c.service,
        table.c.ordering_key,
        postgresql_where=text(f"{IN_FLIGHT} AND sequence IS NOT NULL"),
    )
    return table


def dead_letters(metadata: MetaData) -> Table:
    """The evidence of every job that did not succeed."""
    table = Table(
        "dead_letters",
        metadata,
        Column("id", BigInteger, Identity(always=True)),
        Column("service", Text, nullable=False),
        Column("consumer", Text, nullable=False),
        Column("task", Text, nullable=False),
        Column("job_id", Text, nullable=False),
        *message_columns(),
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
        now("created_at"),
        now("updated_at"),
        PrimaryKeyConstraint("id"),
        CheckConstraint(one_of("reason", Reason), name="reason"),
        CheckConstraint(one_of("status", LETTER_STATUSES), name="status"),
        CheckConstraint(
            "status <> 'discarded' OR (discard_reason IS NOT NULL AND discard_reason ~ '[^[:space:]]' "
            "AND reviewer IS NOT NULL AND resolved_at IS NOT NULL)",
            name="discard",
        ),
        CheckConstraint("status <> 'pending_review' OR resolved_at IS NULL", name="resolved"),
    )
    Index(
        "dead_letters_open_key",
        table.c.consumer,
        table.c.job_id,
        unique=True,
        postgresql_where=text("resolved_at IS NULL"),
    )
    Index("dead_letters_service_idx", table.c.service, table.c.status, table.c.id)
    return table


def audit_log(metadata: MetaData) -> Table:
    """Who did what to which letter; append-only, by triggers."""
    table = Table(
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
    Index("audit_log_letter_idx", table.c.letter_id)
    return table


def audit_seals(metadata: MetaData) -> Table:
    """The hash chain over the audit log."""
    return Table(
        "audit_seals",
        metadata,
        Column("id", BigInteger, Identity(always=True)),
        Column("first_id", BigInteger, nullable=False),
        Column("last_id", BigInteger, nullable=False),
        Column("previous", LargeBinary),
        Column("hash", LargeBinary, nullable=False),
        now("sealed_at"),
        PrimaryKeyConstraint("id"),
        UniqueConstraint("last_id"),
    )


def presence(metadata: MetaData) -> Table:
    """Who was there lately: relays, beat."""
    return Table(
        "presence",
        metadata,
        Column("service", Text),
        Column("role", Text),
        Column("name", Text),
        now("seen_at"),
        PrimaryKeyConstraint("service", "role", "name"),
    )


def order_places(metadata: MetaData) -> Table:
    """The places of dead jobs in the order of their keys."""
    table = Table(
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
        table.c.service,
        table.c.ordering_key,
        table.c.xid,
        table.c.sequence,
        postgresql_where=text("blocks"),
    )
    return table
