"""Checks of PostgreSQL: is what it has committed there after a crash?"""

from collections.abc import Iterator

from harness.worker.check.facts import Facts, source
from harness.worker.check.finding import Found, Start, Verdict, check


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
    server = facts.server
    if server.setting("synchronous_commit") == "off":
        yield f"synchronous_commit is off{source(server, 'synchronous_commit')}."


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
    server = facts.server
    level = server.setting("synchronous_commit")
    if server.setting("synchronous_standby_names") and level in ("local", "remote_write"):
        yield f"synchronous_commit is {level}{source(server, 'synchronous_commit')}."


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
    off = [name for name in ("fsync", "full_page_writes") if facts.server.setting(name) == "off"]
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
    if tables := [name for name in facts.server.unlogged if name != "presence"]:
        yield f"Unlogged: {', '.join(tables)}."
