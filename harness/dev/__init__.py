"""The embedded default: PostgreSQL and a Redis-protocol broker as children of this process."""

from harness.dev.supervisor import run

__all__ = ["run"]
