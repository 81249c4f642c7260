"""${message}

Locks: none on a table that was there.
"""

import sqlalchemy as sa

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    ${downgrades if downgrades else "pass"}
