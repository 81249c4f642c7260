"""Checks of the connections to PostgreSQL: how many, how long, and through what."""

from collections.abc import Iterator

from harness.worker.check.facts import Facts, source
from harness.worker.check.finding import Found, Note, Start, Verdict, check


@check(
    "session-timeouts",
    Verdict.warning,
    Start.says,
    part="database",
    about="`statement_timeout`, `idle_in_transaction_session_timeout`, `transaction_timeout` of the role",
    means="PostgreSQL cuts off a job that is allowed to take longer: a cut statement is a failed try, a cut connection "
    "a delivery, and after harness_max_deliveries the job is dead.",
    do="Set it above the longest hard time limit, for the workers' role: ALTER ROLE … SET …",
)
def session_timeouts(facts: Facts) -> Iterator[Found]:
    server = facts.server
    limits = facts.hard_limits()
    for name in ("statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout"):
        seconds = float(server.setting(name) or 0) / 1000
        # Without any limit a job may take an hour as well.
        longest = max(limits.values(), default=3600.0)
        if 0 < seconds < longest:
            yield f"{name} is {seconds:g} s{source(server, name)}; jobs may take {longest:g} s."


@check(
    "connections",
    Verdict.warning,
    Start.says,
    part="database",
    about="`max_connections`, limits of role and database; `worker_concurrency`, `harness_pool_size`",
    means="Processes without a connection hold their jobs and give them back to the broker: nothing is lost, but "
    "nothing goes on.",
    do="Raise the limit, lower the concurrency, or put a pooler in front (pgbouncer).",
)
def connections(facts: Facts) -> Iterator[Found]:
    server = facts.server
    reserved = sum(int(server.setting(n) or 0) for n in ("superuser_reserved_connections", "reserved_connections"))
    limits = [limit for limit in (server.role_limit, server.database_limit) if limit >= 0]
    available = min([int(server.setting("max_connections") or 0) - reserved, *limits])
    processes = facts.concurrency if facts.pool == "prefork" else 1
    # A relay has one to listen with besides; a receiver, where there are sources, has one.
    receivers = bool(facts.harness.sources) and facts.settings.receive == "worker"
    needed = processes * facts.settings.pool_size + 2 * (facts.settings.relay == "worker") + receivers
    if needed > available and not server.pooled:
        yield f"One worker may open {needed} connections, and PostgreSQL lets this role have {available}."


@check(
    "pooler",
    Verdict.ok,
    Start.no,
    part="database",
    about="pgbouncer or another pooler in front of PostgreSQL",
    means="",
    do="",
)
def pooler(facts: Facts) -> Iterator[Found]:
    if facts.server.pooled:
        yield Note(
            "A pooler stands in front of PostgreSQL. Its pool_mode may be session or transaction, not statement; and "
            "the settings of the role are those of the pooler's own login."
        )
