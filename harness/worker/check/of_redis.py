"""Checks of a server of the Redis protocol: does it keep what it was given?"""

from collections.abc import Iterator

from harness.worker.check.facts import Facts
from harness.worker.check.finding import Found, Note, Start, Unknown, Verdict, check


@check(
    "redis-eviction",
    Verdict.broken,
    Start.no,
    part="redis",
    about="Redis' `maxmemory-policy`, `maxmemory`",
    means="When memory is full the broker deletes queues with the jobs in them, without a trace.",
    do="CONFIG SET maxmemory-policy noeviction, and in redis.conf.",
)
def redis_eviction(facts: Facts) -> Iterator[Found]:
    server = facts.redis
    assert server is not None
    if server.policy is None:
        yield Unknown(f"maxmemory-policy cannot be read: {server.problem or 'the server does not say'}.")
    elif server.policy.startswith("allkeys-"):
        limit = f"maxmemory is {server.maxmemory} bytes" if server.maxmemory else "there is no maxmemory yet"
        text = f"maxmemory-policy is {server.policy}; {limit}."
        yield text if server.maxmemory else Note(text)


@check(
    "redis-persistence",
    Verdict.broken,
    Start.no,
    part="redis",
    about="Redis' `appendonly`, `save`",
    means="A restart of the broker loses every message without a trace.",
    do="CONFIG SET appendonly yes, and in redis.conf.",
)
def redis_persistence(facts: Facts) -> Iterator[Found]:
    server = facts.redis
    assert server is not None
    if server.append_only is None or (not server.append_only and server.saves is None):
        yield Unknown(f"appendonly and save cannot be read: {server.problem or 'the server does not say'}.")
    elif not server.append_only and not server.saves:
        yield "appendonly is off, and no snapshots are taken (save)."


@check(
    "redis-append-only",
    Verdict.warning,
    Start.no,
    part="redis",
    about="Redis' `appendonly`, `appendfsync`",
    means="What came after the last snapshot, or was not yet on the disk, is lost when the server dies.",
    do="CONFIG SET appendonly yes, with appendfsync everysec (a second may be lost) or always.",
)
def redis_append_only(facts: Facts) -> Iterator[Found]:
    server = facts.redis
    assert server is not None
    if server.append_only is False and server.saves:
        yield "appendonly is off: only snapshots are taken."
    elif server.append_only and server.append_fsync == "no":
        yield "appendonly is on, but appendfsync is no."


@check(
    "redis-rights",
    Verdict.broken,
    Start.no,
    part="redis",
    about="Redis' rights (ACL) of the user in `broker_url`",
    means="A worker can't consume: it connects, is refused, and connects again, for ever.",
    do="ACL SETUSER <the workers' user> ~* &* +@all -@admin -@dangerous +info, or what the page Deploy says of keys.",
)
def redis_rights(facts: Facts) -> Iterator[Found]:
    server = facts.redis
    assert server is not None
    if server.no_rights:
        yield f"{server.no_rights}."


@check(
    "redis-tracking",
    Verdict.ok,
    Start.no,
    part="redis",
    about="`CLIENT TRACKING`, which Redis has since version 6",
    means="",
    do="",
)
def redis_tracking(facts: Facts) -> Iterator[Found]:
    server = facts.redis
    assert server is not None
    if server.no_tracking:
        yield Note(f"The server does not tell of new messages ({server.no_tracking}): it is asked ten times a second.")
