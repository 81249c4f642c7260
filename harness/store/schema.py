"""The shape of the tables, for any schema name. The migrations create the same; a test proves the two equal."""

from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy import MetaData, Sequence, Table

from harness.store import tables
from harness.store.columns import DUE, FENCE_STATES, LETTER_STATUSES, NAMING, PRIORITY_CLASS, check_schema_name

__all__ = ["DUE", "FENCE_STATES", "LETTER_STATUSES", "PRIORITY_CLASS", "Tables", "check_schema_name", "tables_of"]


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


@lru_cache
def tables_of(schema: str) -> Tables:
    """Build the tables of `schema`."""
    metadata = MetaData(schema=check_schema_name(schema), naming_convention=NAMING)
    generation = Sequence("inbox_generation", metadata=metadata, schema=schema)
    return Tables(
        metadata,
        tables.processed_jobs(metadata),
        tables.inbox(metadata, generation),
        tables.dead_letters(metadata),
        tables.audit_log(metadata),
        tables.audit_seals(metadata),
        tables.presence(metadata),
        tables.order_places(metadata),
    )
