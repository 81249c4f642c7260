"""Statements and round trips per job, counted in the server's own log."""

import re
import time
from collections import defaultdict
from dataclasses import dataclass

from benchmarks.servers import Sql
from benchmarks.variants import Variant
from harness.dev.postgres import Postgres

_LINE = re.compile(r"^(\w+)\|(\d+)\|LOG:  statement: (.*)")
JOBS = 20


@dataclass(frozen=True)
class Traffic:
    """Per job: messages that the client sent and waited for, and the statements in them."""

    round_trips: float
    statements: float


def count(variants: list[Variant], postgres: Postgres, sql: Sql) -> dict[str, Traffic]:
    """Let each variant do a few jobs while the server logs every message that it gets."""
    _log(sql, "all")
    offset = postgres.log.stat().st_size
    for variant in variants:
        variant.work_off(JOBS)
    _log(sql, "none")
    said: dict[tuple[str, str], list[str]] = defaultdict(list)
    for line in postgres.log.read_bytes()[offset:].decode(errors="replace").splitlines():
        if found := _LINE.match(line):
            said[found[1], found[2]].append(found[3])
    # A relay has the same application name; the processes at work are those that write the ledger.
    work = {key: texts for key, texts in said.items() if any("bench.ledger" in text for text in texts)}
    return {
        variant.name: Traffic(
            sum(len(texts) for (name, _), texts in work.items() if name == variant.name) / JOBS,
            sum(text.count(";") + 1 for (name, _), texts in work.items() if name == variant.name for text in texts)
            / JOBS,
        )
        for variant in variants
    }


def _log(sql: Sql, what: str) -> None:
    sql.rows(f"ALTER SYSTEM SET log_statement = '{what}'")
    sql.rows("SELECT pg_reload_conf()")
    time.sleep(0.5)  # until every session has read it
