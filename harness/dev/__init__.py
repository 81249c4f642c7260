"""The embedded default: PostgreSQL and a Redis-protocol broker as children of this process."""
