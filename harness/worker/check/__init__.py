"""The doctor: every setting that can break a promise has one check, and the check one verdict.

A check is a function of the facts (`facts.Facts`), which are gathered before; it yields what is wrong, in words. The
rest (verdict, what it means, what to do) is the check's own and the same each time. docs/howto/check.md lists them.
"""

from harness.worker.check import (  # noqa: I001, F401 – each registers its checks, in this order
    of_settings,
    of_jobs,
    of_service,
    of_messages,
    of_pool,
    of_external,
    of_limits,
    of_clocks,
    of_presence,
    of_database,
    of_durability,
    of_connections,
    of_order,
    of_broker,
    of_queues,
    of_redis,
)
from harness.worker.check.facts import Options
from harness.worker.check.finding import CHECKS, Check, Finding, Start, Verdict
from harness.worker.check.run import at_start, diagnose

__all__ = [
    "CHECKS",
    "Check",
    "Finding",
    "Options",
    "Start",
    "Verdict",
    "at_start",
    "diagnose",
]
