"""Checks of PostgreSQL: is what it has committed there after a crash, and may the role do what the code does?"""

from collections.abc import Iterator

from harness.store import revisions
from harness.store.server import Server
from harness.worker.check.facts import Facts
from harness.worker.check.finding import Found, Note, Start, Verdict, check

OLDEST = 140_000
#: Seconds that a job waits for a transaction before it is worth a word.
HELD_TOO_LONG = 10.0


def _server(facts: Facts) -> Server:
    assert facts.database is not None
    return facts.database


@check(
    "database",
    Verdict.broken,
    Start.says,
    about="`harness_database_url`, `HARNESS_DATABASE_URL`",
    means="Without it no job has an outcome; the messages are held and go back to the broker.",
    do="Check that the server runs and what the URL says: host, port, user, database.",
)
def database(facts: Facts) -> Iterator[Found]:
    if facts.database_problem:
        yield f"PostgreSQL cannot be used: {facts.database_problem}"


@check(
    "schema",
    Verdict.broken,
    Start.refuses,
    part="database",
    about="the tables' revision",
    means="No job can have an outcome there.",
    do="Create or upgrade them: celery -A yourapp harness migrate",
)
def schema(facts: Facts) -> Iterator[Found]:
    where = f"The schema {facts.settings.schema_name!r} of the database"
    revision = _server(facts).revision
    stand = revisions.stand(revision)
    if stand is revisions.Stand.MISSING and not _server(facts).missing_rights:
        yield f"{where} has no tables of the harness."
    elif stand is revisions.Stand.TOO_OLD:
        yield f"{where} has tables of the older release {revision}; this one works on {revisions.OLDEST} and newer."


@check(
    "schema-behind",
    Verdict.warning,
    Start.says,
    part="database",
    about="the tables' revision",
    means="This release still works with it, for the time of a roll-out, without what the new tables are for.",
    do="Upgrade them: celery -A yourapp harness migrate. At the next deploy, before the workers.",
)
def schema_behind(facts: Facts) -> Iterator[Found]:
    revision = _server(facts).revision
    if revisions.stand(revision) is revisions.Stand.BEHIND:
        yield f"The tables are at {revision}, behind this release ({revisions.newest()})."


@check(
    "schema-ahead",
    Verdict.warning,
    Start.says,
    part="database",
    about="the tables' revision",
    means="One release apart works, for the time of a roll-out; more was not proven.",
    do="Install the release that the tables are of.",
)
def schema_ahead(facts: Facts) -> Iterator[Found]:
    revision = _server(facts).revision
    if revisions.stand(revision) is revisions.Stand.AHEAD:
        yield f"The tables are at {revision}, which this release does not know: it is older than they are."


@check(
    "postgresql-version",
    Verdict.broken,
    Start.refuses,
    part="database",
    about="PostgreSQL's version",
    means="What the fence's statement sets is not there before 14: every job would fail.",
    do="Upgrade PostgreSQL.",
)
def postgresql_version(facts: Facts) -> Iterator[Found]:
    if _server(facts).version < OLDEST:
        yield f"PostgreSQL is {_server(facts).version_text}."


@check(
    "read-only",
    Verdict.broken,
    Start.refuses,
    part="database",
    about="`default_transaction_read_only`, a standby's URL",
    means="Nothing can be committed there: every message is held and goes back to the broker.",
    do="Let the URL lead to the primary (target_session_attrs=read-write), and the role write.",
)
def read_only(facts: Facts) -> Iterator[Found]:
    server = _server(facts)
    if server.standby:
        yield "The server is a standby."
    elif server.setting("default_transaction_read_only") == "on":
        yield f"default_transaction_read_only is on{_source(server, 'default_transaction_read_only')}."


@check(
    "privileges",
    Verdict.broken,
    Start.refuses,
    part="database",
    about="what the role may do with the tables",
    means="Outcomes cannot be recorded: the messages are held, or the evidence of a failure cannot be written.",
    do="GRANT it, or run `harness migrate` as the role of the workers.",
)
def privileges(facts: Facts) -> Iterator[Found]:
    server = _server(facts)
    if server.missing_rights:
        yield f"The role {server.role!r} may not: {', '.join(server.missing_rights)}."


@check(
    "synchronous-commit",
    Verdict.broken,
    Start.refuses,
    part="database",
    about="`synchronous_commit` of the server, the database or the role",
    means="A commit may be gone after a crash of PostgreSQL, but the job's message is acknowledged by then: the job is "
    "lost without a trace.",
    do="ALTER ROLE … SET synchronous_commit = on; to save waits elsewhere, set it off in transactions of your own.",
)
def synchronous_commit(facts: Facts) -> Iterator[Found]:
    server = _server(facts)
    if server.setting("synchronous_commit") == "off":
        yield f"synchronous_commit is off{_source(server, 'synchronous_commit')}."


@check(
    "synchronous-standby",
    Verdict.warning,
    Start.says,
    part="database",
    about="`synchronous_commit` = local or remote_write where there are synchronous standbys",
    means="After a failover the standby may lack jobs that were acknowledged.",
    do="ALTER ROLE … SET synchronous_commit = on",
)
def synchronous_standby(facts: Facts) -> Iterator[Found]:
    server = _server(facts)
    level = server.setting("synchronous_commit")
    if server.setting("synchronous_standby_names") and level in ("local", "remote_write"):
        yield f"synchronous_commit is {level}{_source(server, 'synchronous_commit')}."


@check(
    "fsync",
    Verdict.broken,
    Start.says,
    part="database",
    about="`fsync`, `full_page_writes` of the server",
    means="When the machine crashes the database may be damaged: fences, letters and the jobs' effects are lost. Good "
    "for the servers of tests only.",
    do="Set both to on in postgresql.conf.",
)
def fsync(facts: Facts) -> Iterator[Found]:
    off = [name for name in ("fsync", "full_page_writes") if _server(facts).setting(name) == "off"]
    if off:
        yield f"{' and '.join(off)} {'is' if len(off) == 1 else 'are'} off."


@check(
    "unlogged",
    Verdict.broken,
    Start.refuses,
    part="database",
    about="`UNLOGGED` tables",
    means="PostgreSQL empties such a table after a crash: with the fences gone jobs run again, with the letters gone "
    "the evidence is lost.",
    do="ALTER TABLE … SET LOGGED",
)
def unlogged(facts: Facts) -> Iterator[Found]:
    if tables := [name for name in _server(facts).unlogged if name != "presence"]:
        yield f"Unlogged: {', '.join(tables)}."


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
    server = _server(facts)
    limits = facts.hard_limits()
    for name in ("statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout"):
        seconds = float(server.setting(name) or 0) / 1000
        # Without any limit a job may take an hour as well.
        longest = max(limits.values(), default=3600.0)
        if 0 < seconds < longest:
            yield f"{name} is {seconds:g} s{_source(server, name)}; jobs may take {longest:g} s."


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
    server = _server(facts)
    reserved = sum(int(server.setting(n) or 0) for n in ("superuser_reserved_connections", "reserved_connections"))
    limits = [limit for limit in (server.role_limit, server.database_limit) if limit >= 0]
    available = min([int(server.setting("max_connections") or 0) - reserved, *limits])
    processes = facts.concurrency if facts.pool == "prefork" else 1
    # A relay has one to listen with besides.
    needed = processes * facts.settings.pool_size + 2 * (facts.settings.relay == "worker")
    if needed > available and not server.pooled:
        yield f"One worker may open {needed} connections, and PostgreSQL lets this role have {available}."


@check(
    "order-held",
    Verdict.warning,
    Start.no,
    part="database",
    about="transactions that have written and stay open, also prepared ones, in any database of the server",
    means="A job with an ordering key is sent when no transaction is open any more that is older than its own: that "
    "one may still put something before it. Jobs without a key are not held.",
    do="End that transaction: COMMIT or ROLLBACK PREPARED, SELECT pg_terminate_backend(pid); and keep them short "
    "(idle_in_transaction_session_timeout).",
)
def order_held(facts: Facts) -> Iterator[Found]:
    order = _server(facts).order
    if order is not None and order.held and order.for_seconds > HELD_TOO_LONG:
        who = "; ".join(order.transactions) or "not visible to this role (GRANT pg_read_all_stats)"
        jobs = "1 job with an ordering key waits" if order.held == 1 else f"{order.held} jobs with a key wait"
        yield f"{jobs}, up to {order.for_seconds:.0f} s, for a transaction: {who}."


@check(
    "order-restored",
    Verdict.broken,
    Start.no,
    part="database",
    about="a dump that was restored into another PostgreSQL",
    means="The places of jobs with an ordering key are numbers of transactions. Those of the old server lie ahead of "
    "the new one's: such a job waits until the new server has come as far, and newer ones go before it.",
    do="Stop workers and producers, then: celery -A yourapp harness reorder --yes",
)
def order_restored(facts: Facts) -> Iterator[Found]:
    order = _server(facts).order
    if order is not None and order.ahead:
        jobs = "1 job has a place" if order.ahead == 1 else f"{order.ahead} jobs have places"
        yield f"{jobs} of transactions that this server has not had."


@check(
    "encoding",
    Verdict.warning,
    Start.says,
    part="database",
    about="the database's encoding",
    means="Texts of errors and payloads with other characters cannot be written: their letters are tried again and "
    "again.",
    do="Create the database with ENCODING 'UTF8'.",
)
def encoding(facts: Facts) -> Iterator[Found]:
    if (code := _server(facts).setting("server_encoding")) != "UTF8":
        yield f"The database's encoding is {code}."


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
    if _server(facts).pooled:
        yield Note(
            "A pooler stands in front of PostgreSQL. Its pool_mode may be session or transaction, not statement; and "
            "the settings of the role are those of the pooler's own login."
        )


def _source(server: Server, name: str) -> str:
    source = server.settings[name].source
    where = {"user": f" for the role {server.role!r}", "database": f" for the database {server.name!r}"}
    both = f" for the role {server.role!r} in the database {server.name!r}"
    return both if source == "database user" else where.get(source, f" ({source})")
