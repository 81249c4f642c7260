"""The tables: processed_jobs, inbox, dead_letters, audit_log, audit_seals.

Locks: none on a table that was there.
"""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import UserDefinedType

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

REASONS = (
    "invalid_payload",
    "undecodable",
    "unknown_task",
    "permanent",
    "exhausted",
    "crashed",
    "timed_out",
    "not_ready",
    "too_old",
    "conflict",
    "expired",
    "revoked",
    "outcome_unknown",
    "broker",
)


class XID8(UserDefinedType):
    cache_ok = True

    def get_col_spec(self, **_):
        return "xid8"


def one_of(column, values):
    return f"{column} IN ({', '.join(repr(value) for value in values)})"


def time(name, default="now()"):
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False, server_default=sa.text(default))


def message_columns():
    return [
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("content_type", sa.Text),
        sa.Column("content_encoding", sa.Text),
        sa.Column("headers", sa.LargeBinary, nullable=False),
        sa.Column("properties", sa.LargeBinary, nullable=False),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("ordering_key", sa.Text),
        sa.Column("sequence", sa.BigInteger),
        sa.Column("tenant", sa.Text),
        sa.Column("priority", sa.SmallInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("correlation_id", sa.Text),
    ]


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    op.execute(sa.schema.CreateSequence(sa.Sequence("inbox_generation", schema=schema)))
    op.create_table(
        "processed_jobs",
        sa.Column("job_id", sa.Text),
        sa.Column("consumer", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        time("processed_at"),
        sa.Column("digest", sa.LargeBinary),
        sa.Column("result", sa.LargeBinary),
        sa.PrimaryKeyConstraint("job_id", "consumer", name="processed_jobs_pkey"),
        sa.CheckConstraint(
            one_of("state", ("done", "waiting", "dead", "claimed")), name=op.f("processed_jobs_state_check")
        ),
        schema=schema,
    )
    op.create_table(
        "inbox",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True)),
        sa.Column("service", sa.Text, nullable=False),
        sa.Column("consumer", sa.Text, nullable=False),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("job_id", sa.Text, nullable=False),
        *message_columns(),
        sa.Column("digest", sa.LargeBinary),
        sa.Column("xid", XID8, nullable=False, server_default=sa.text("pg_current_xact_id()")),
        time("available_at"),
        sa.Column("expires_at", sa.DateTime(timezone=True)),
        sa.Column("attempts", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("deliveries", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("dispatches", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("generation", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("leased_until", sa.DateTime(timezone=True)),
        sa.Column("failures", JSONB, nullable=False, server_default=sa.text("'[]'::jsonb")),
        sa.Column("letter_id", sa.BigInteger),
        sa.Column("relay_error", sa.Text),
        time("created_at"),
        sa.PrimaryKeyConstraint("id", name="inbox_pkey"),
        sa.UniqueConstraint("consumer", "job_id", name="inbox_consumer_job_id_key"),
        sa.CheckConstraint("attempts >= 0 AND deliveries >= 0 AND dispatches >= 0", name=op.f("inbox_counts_check")),
        schema=schema,
    )
    op.create_index(
        "inbox_due_idx", "inbox", ["service", sa.text("coalesce(leased_until, available_at)")], schema=schema
    )
    op.create_index(
        "inbox_ordering_idx",
        "inbox",
        ["service", "ordering_key", "sequence"],
        schema=schema,
        postgresql_where=sa.text("ordering_key IS NOT NULL"),
    )
    op.create_table(
        "dead_letters",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True)),
        sa.Column("service", sa.Text, nullable=False),
        sa.Column("consumer", sa.Text, nullable=False),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("job_id", sa.Text, nullable=False),
        *message_columns(),
        sa.Column("digest", sa.LargeBinary),
        sa.Column("payload", JSONB),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("deliveries", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("error_type", sa.Text, nullable=False),
        sa.Column("error_message", sa.Text, nullable=False),
        sa.Column("traceback", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("failures", JSONB, nullable=False),
        sa.Column("status", sa.Text, nullable=False, server_default=sa.text("'pending_review'")),
        sa.Column("reviewer", sa.Text),
        sa.Column("reviewed_at", sa.DateTime(timezone=True)),
        sa.Column("discard_reason", sa.Text),
        sa.Column("replays", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("lineage", JSONB, nullable=False, server_default=sa.text("'[]'::jsonb")),
        sa.Column("surfaced", sa.Text),
        sa.Column("alerted_at", sa.DateTime(timezone=True)),
        sa.Column("resolved_at", sa.DateTime(timezone=True)),
        time("created_at"),
        time("updated_at"),
        sa.PrimaryKeyConstraint("id", name="dead_letters_pkey"),
        sa.CheckConstraint(one_of("reason", REASONS), name=op.f("dead_letters_reason_check")),
        sa.CheckConstraint(
            one_of("status", ("pending_review", "replayed", "discarded")), name=op.f("dead_letters_status_check")
        ),
        sa.CheckConstraint(
            "status <> 'discarded' OR (discard_reason IS NOT NULL AND discard_reason ~ '[^[:space:]]' "
            "AND reviewer IS NOT NULL AND resolved_at IS NOT NULL)",
            name=op.f("dead_letters_discard_check"),
        ),
        sa.CheckConstraint(
            "status <> 'pending_review' OR resolved_at IS NULL", name=op.f("dead_letters_resolved_check")
        ),
        schema=schema,
    )
    op.create_index(
        "dead_letters_open_key",
        "dead_letters",
        ["consumer", "job_id"],
        unique=True,
        schema=schema,
        postgresql_where=sa.text("resolved_at IS NULL"),
    )
    op.create_index("dead_letters_service_idx", "dead_letters", ["service", "status", "id"], schema=schema)
    op.create_table(
        "audit_log",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True)),
        time("at", "clock_timestamp()"),
        sa.Column("service", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("letter_id", sa.BigInteger, nullable=False),
        sa.Column("consumer", sa.Text, nullable=False),
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("details", JSONB, nullable=False, server_default=sa.text("'{}'::jsonb")),
        sa.PrimaryKeyConstraint("id", name="audit_log_pkey"),
        schema=schema,
    )
    op.create_index("audit_log_letter_idx", "audit_log", ["letter_id"], schema=schema)
    op.create_table(
        "audit_seals",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True)),
        sa.Column("first_id", sa.BigInteger, nullable=False),
        sa.Column("last_id", sa.BigInteger, nullable=False),
        sa.Column("previous", sa.LargeBinary),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        time("sealed_at"),
        sa.PrimaryKeyConstraint("id", name="audit_seals_pkey"),
        sa.UniqueConstraint("last_id", name="audit_seals_last_id_key"),
        schema=schema,
    )
    op.execute(
        f"""
        CREATE FUNCTION "{schema}".audit_log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION 'audit_log is append-only: % is refused', TG_OP USING ERRCODE = 'restrict_violation';
        END $$
        """
    )
    op.execute(
        f"""
        CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON "{schema}".audit_log
        FOR EACH STATEMENT EXECUTE FUNCTION "{schema}".audit_log_is_append_only()
        """
    )


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    for table in ("audit_seals", "audit_log", "dead_letters", "inbox", "processed_jobs"):
        op.drop_table(table, schema=schema)
    op.execute(f'DROP FUNCTION "{schema}".audit_log_is_append_only()')
    op.execute(sa.schema.DropSequence(sa.Sequence("inbox_generation", schema=schema)))
