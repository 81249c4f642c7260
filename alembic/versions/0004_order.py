"""Order: the places of dead letters in the order of their keys; the indexes by which the relay finds whose turn it is.

Locks: inbox SHARE, which holds off its writers while CREATE INDEX reads it (20 seconds for a million rows on a busy
machine, measured); inbox ACCESS EXCLUSIVE for a moment, to drop two indexes.

Releases before this one work with it unchanged; what they send is in no order.
"""

import sqlalchemy as sa

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

DUE = "coalesce(leased_until, available_at)"
CLASS = "least(greatest(priority, 0), 9)"
IN_FLIGHT = "leased_until IS NOT NULL AND relay_error IS NULL"


class XID8(sa.types.UserDefinedType):
    cache_ok = True

    def get_col_spec(self, **_):
        return "xid8"


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    op.create_table(
        "order_places",
        sa.Column("letter_id", sa.BigInteger, autoincrement=False),
        sa.Column("service", sa.Text, nullable=False),
        sa.Column("ordering_key", sa.Text, nullable=False),
        sa.Column("xid", XID8, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("blocks", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("letter_id", name="order_places_pkey"),
        schema=schema,
    )
    op.create_index(
        "order_places_blocks_idx",
        "order_places",
        ["service", "ordering_key", "xid", "sequence"],
        schema=schema,
        postgresql_where=sa.text("blocks"),
    )
    op.create_index(
        "inbox_turn_idx",
        "inbox",
        ["service", "ordering_key", "xid", "sequence"],
        schema=schema,
        postgresql_where=sa.text("sequence IS NOT NULL"),
    )
    op.create_index(
        "inbox_turn_taken_idx",
        "inbox",
        ["service", "ordering_key"],
        schema=schema,
        postgresql_where=sa.text(f"{IN_FLIGHT} AND sequence IS NOT NULL"),
    )
    op.create_index(
        "inbox_in_flight_idx", "inbox", ["service", "consumer"], schema=schema, postgresql_where=sa.text(IN_FLIGHT)
    )
    op.create_index(
        "inbox_lanes_idx",
        "inbox",
        ["service", sa.text(CLASS), "consumer", sa.text("coalesce(tenant, '')"), sa.text(DUE)],
        schema=schema,
    )
    op.drop_index("inbox_ordering_idx", table_name="inbox", schema=schema)
    op.drop_index("inbox_priority_idx", table_name="inbox", schema=schema)


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.create_index("inbox_priority_idx", "inbox", ["service", sa.text(CLASS), sa.text(DUE)], schema=schema)
    op.create_index(
        "inbox_ordering_idx",
        "inbox",
        ["service", "ordering_key", "sequence"],
        schema=schema,
        postgresql_where=sa.text("ordering_key IS NOT NULL"),
    )
    for index in ("lanes", "in_flight", "turn_taken", "turn"):
        op.drop_index(f"inbox_{index}_idx", table_name="inbox", schema=schema)
    op.drop_table("order_places", schema=schema)
