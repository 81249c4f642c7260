"""presence: when the relays and beat of a service were last seen at work.

Locks: none on a table that was there. Code of 0001 goes on as it is.
"""

import sqlalchemy as sa

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "presence",
        sa.Column("service", sa.Text),
        sa.Column("role", sa.Text),
        sa.Column("name", sa.Text),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("now()")),
        sa.PrimaryKeyConstraint("service", "role", "name", name="presence_pkey"),
        schema=op.get_context().version_table_schema,
    )


def downgrade() -> None:
    op.drop_table("presence", schema=op.get_context().version_table_schema)
