"""Way 8: PostgreSQL cannot serve for a while."""

from tests.failures.case import Case, Send
from tests.failures.place import Place
from tests.services import run_sql

AWAY = 3.0
_KICK = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
    "AND usename LIKE 'role_%'"
)


def limit_connections(place: Place) -> None:
    run_sql(place.database, f"ALTER ROLE {place.role_name} CONNECTION LIMIT 0")
    place.state.sql(_KICK)


def then_free_connections(place: Place) -> None:
    place.wait(AWAY)
    run_sql(place.database, f"ALTER ROLE {place.role_name} CONNECTION LIMIT -1")


def read_only(place: Place) -> None:
    run_sql(place.database, f"ALTER ROLE {place.role_name} SET default_transaction_read_only = on")
    place.state.sql(_KICK)


def then_writable(place: Place) -> None:
    place.wait(AWAY)
    run_sql(place.database, f"ALTER ROLE {place.role_name} RESET default_transaction_read_only")
    place.state.sql(_KICK)


def full(table: str):
    """Every write into `table` says that the disk is full, as PostgreSQL would."""

    def fill(place: Place) -> None:
        place.state.sql(
            "CREATE OR REPLACE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$"
        )
        place.state.sql(f"CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON {table} EXECUTE FUNCTION full_disk()")
        place.extra["table"] = table

    return fill


def then_space(place: Place) -> None:
    place.wait(AWAY)
    make_space(place)


def make_space(place: Place) -> None:
    place.state.sql(f"DROP TRIGGER IF EXISTS full_disk ON {place.extra['table']}")


def limit(setting: str, value: str):
    def set_it(place: Place) -> None:
        run_sql(place.database, f"ALTER ROLE {place.role_name} SET {setting} = '{value}'")
        place.state.sql(_KICK)
        place.extra["setting"] = setting

    return set_it


def no_limit(place: Place) -> None:
    run_sql(place.database, f"ALTER ROLE {place.role_name} RESET {place.extra['setting']}")
    place.state.sql(_KICK)


def kick(place: Place) -> None:
    place.at_work()
    place.state.sql(_KICK)


def restart(place: Place) -> None:
    assert place.postgres is not None
    place.at_work()
    place.main(place.postgres.restart)


def crash(place: Place) -> None:
    assert place.postgres is not None
    place.at_work()
    place.postgres.kill()
    place.wait(1)
    place.main(place.postgres.start)


def locked(place: Place) -> None:
    """Somebody else holds the whole table for a while, as a migration would."""
    place.state.sql(
        "DO $$ BEGIN LOCK TABLE ledger IN ACCESS EXCLUSIVE MODE; PERFORM pg_sleep(4); END $$",
    )


def pairs(place: Place) -> None:
    place.state.sql("CREATE TABLE IF NOT EXISTS pairs AS SELECT id, 0 AS n FROM generate_series(1, 2) id")
    place.state.sql("GRANT ALL ON pairs TO PUBLIC")


def _crossing(first: int, second: int) -> Send:
    """Locks two rows one after the other."""
    steps = f"UPDATE pairs SET n = n + 1 WHERE id = {first}; PERFORM pg_sleep(1); UPDATE pairs SET n = n + 1 WHERE id"
    return Send("sql", {"statement": f"DO $$ BEGIN {steps} = {second}; END $$"}, 2)


_SLOW = [Send("credit", {"pause": 1.0})]

CASES = [
    Case(
        "no connection left",
        8,
        "the role's connection limit is reached for 3 s",
        before=limit_connections,
        wrong=then_free_connections,
        after=then_free_connections,
    ),
    Case(
        "read-only standby",
        8,
        "every transaction is read-only for 3 s",
        before=read_only,
        wrong=then_writable,
        after=then_writable,
    ),
    Case(
        "disk full in the handler",
        8,
        "the handler's INSERT says 53100 for 3 s",
        before=full("ledger"),
        wrong=then_space,
        after=make_space,
    ),
    Case(
        "disk full at the fence",
        8,
        "INSERT of the fence says 53100 for 3 s",
        before=full("core.processed_jobs"),
        wrong=then_space,
        after=make_space,
    ),
    Case(
        "disk full at the verdict",
        8,
        "INSERT of the letter says 53100 for 3 s",
        [Send("raises", {"what": "reject"})],
        0,
        {"permanent": 1},
        before=full("core.dead_letters"),
        wrong=then_space,
        after=make_space,
    ),
    Case(
        "disk full at a dead child's record",
        8,
        "the same where the process died",
        [Send("dies", {"how": "kill"})],
        0,
        {"crashed": 1},
        before=full("core.dead_letters"),
        wrong=then_space,
        after=make_space,
    ),
    Case(
        "disk full at the audit log",
        8,
        "INSERT into the audit log says 53100 for 3 s",
        [Send("raises", {"what": "reject"})],
        0,
        {"permanent": 1},
        before=full("core.audit_log"),
        wrong=then_space,
        after=make_space,
    ),
    Case(
        "statement_timeout",
        8,
        "the handler's statement takes longer than the role's statement_timeout",
        [Send("sql", {"statement": "SELECT pg_sleep(5)"})],
        0,
        {"exhausted": 1},
        before=limit("statement_timeout", "700ms"),
        after=no_limit,
    ),
    Case(
        "idle_in_transaction_session_timeout",
        8,
        "the handler is idle for longer than the role's limit, each time",
        [Send("sql", {"statement": "SELECT 1", "pause": 2})],
        0,
        {"crashed": 1},
        before=limit("idle_in_transaction_session_timeout", "500ms"),
        after=no_limit,
        settings={"harness_max_deliveries": 3},
        seconds=60,
    ),
    Case(
        "connection ended in the work",
        8,
        "pg_terminate_backend on every connection, in the middle of the work",
        _SLOW,
        wrong=kick,
    ),
    Case(
        "deadlock",
        8,
        "jobs lock the same two rows in opposite order",
        [_crossing(1, 2), _crossing(2, 1)],
        4,
        before=pairs,
    ),
    Case(
        "serialization failure",
        8,
        "40001 in the handler each time",
        [Send("sql", {"statement": "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END $$"})],
        0,
        {"exhausted": 1},
    ),
    Case(
        "table locked by a migration", 8, "ACCESS EXCLUSIVE on the handler's table for 4 s", before=None, wrong=locked
    ),
    Case(
        "PostgreSQL restarted",
        8,
        "restart in good order in the middle of the work",
        _SLOW,
        wrong=restart,
        own=frozenset({"database"}),
        seconds=60,
    ),
    Case(
        "PostgreSQL crashed",
        8,
        "SIGKILL in the middle of the work",
        _SLOW,
        wrong=crash,
        own=frozenset({"database"}),
        seconds=60,
    ),
]
