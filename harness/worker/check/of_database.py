"""Checks of PostgreSQL: has it the tables, and may the role do what the code does?"""

from collections.abc import Iterator

from harness.store import revisions
from harness.worker.check.facts import Facts, source
from harness.worker.check.finding import Found, Start, Verdict, check

OLDEST = 140_000


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
    revision = facts.server.revision
    stand = revisions.stand(revision)
    if stand is revisions.Stand.MISSING and not facts.server.missing_rights:
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
    revision = facts.server.revision
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
    revision = facts.server.revision
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
    if facts.server.version < OLDEST:
        yield f"PostgreSQL is {facts.server.version_text}."


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
    server = facts.server
    if server.standby:
        yield "The server is a standby."
    elif server.setting("default_transaction_read_only") == "on":
        yield f"default_transaction_read_only is on{source(server, 'default_transaction_read_only')}."


@check(
    "privileges",
    Verdict.broken,
    Start.refuses,
    part="database",
    about="what the role may do with the tables",
    means="Outcomes cannot be recorded: the messages are held, or the evidence of a failure cannot be written.",
    do="Have the owner of the tables run the GRANTs that this writes: celery -A yourapp harness migrate --grants ROLE. "
    "Or run `harness migrate` as the role of the workers.",
)
def privileges(facts: Facts) -> Iterator[Found]:
    server = facts.server
    if server.missing_rights:
        yield f"The role {server.role!r} may not: {', '.join(server.missing_rights)}."


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
    if (code := facts.server.setting("server_encoding")) != "UTF8":
        yield f"The database's encoding is {code}."
