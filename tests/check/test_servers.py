"""Faults of real servers: PostgreSQL, Redis protocol, RabbitMQ."""

from __future__ import annotations

import select
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from kombu import Connection, Exchange, Queue
from redis import Redis
from sqlalchemy.orm import Session

from harness.store import server
from harness.store.database import Database
from harness.store.migrate import downgrade
from harness.worker import check
from harness.worker.check import CHECKS
from tests.check.doctor import Patient, named, patient, start
from tests.letters import Place
from tests.rabbitmq import RabbitMQ
from tests.services import Servers, run_sql


@pytest.fixture
def place(database: str) -> Iterator[Place]:
    made = Place(database)
    yield made
    made.database.dispose()


@pytest.fixture
def role(place: Place) -> Iterator[Callable[..., str]]:
    """Makes a role with settings of its own; its URL."""
    name = f"app_{urlsplit(place.url).path.rpartition('_')[2]}"

    def make(*clauses: str, rights: str = "SELECT, INSERT, UPDATE, DELETE") -> str:
        place.run(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
        place.run(f"GRANT USAGE ON SCHEMA core TO {name}; GRANT {rights} ON ALL TABLES IN SCHEMA core TO {name}")
        for clause in clauses:
            place.run(f"ALTER ROLE {name} {clause}")
        return str(Database(place.url).url.set(username=name, password="secret").render_as_string(hide_password=False))

    yield make
    place.run(f"DROP OWNED BY {name}; DROP ROLE {name}")


def assert_named(url: str, name: str, says: str, caplog: pytest.LogCaptureFixture, **conf: Any) -> None:
    """By the command and at the start of a worker."""
    kind = CHECKS[name]
    with patient(url, "memory://", conf) as sick:
        report = sick.report()
        [found, *_] = [row for row in report["findings"] if row["name"] == name]
        assert (found["verdict"], says in found["what"]) == (kind.verdict, True), found
        assert (report["code"] == 1) == (kind.verdict == "broken")
        refused, lines = start(sick, caplog)
        assert (f"{name}: " in refused) == (kind.start == "refuses"), refused
        assert bool(named(lines, name)) == (kind.start == "says"), lines


@pytest.mark.parametrize(
    ("name", "clauses", "says"),
    [
        ("synchronous-commit", ["SET synchronous_commit = off"], "is off for the role 'app_"),
        ("read-only", ["SET default_transaction_read_only = on"], "is on for the role"),
        ("session-timeouts", ["SET statement_timeout = '20s'"], "statement_timeout is 20 s for the role"),
        ("session-timeouts", ["SET idle_in_transaction_session_timeout = '10s'"], "session_timeout is 10 s"),
        ("connections", ["CONNECTION LIMIT 2"], "may open 4 connections, and PostgreSQL lets this role have 2"),
    ],
)
def test_settings_of_the_role(
    name: str, clauses: list[str], says: str, role: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    assert_named(role(*clauses), name, says, caplog)


def test_a_receiver_needs_a_connection_too(role: Callable[..., str]) -> None:
    def source(harness: Any) -> None:
        @harness.job(name="take", shared=False)
        def take(session: Session, item: str = "") -> None: ...

        harness.source("orders", job=take, queue="orders")

    url = role("CONNECTION LIMIT 4")
    with patient(url, "memory://") as sick:
        assert sick.findings()["connections"]["verdict"] == "ok"
    with patient(url, "memory://", jobs=source) as sick:
        assert "may open 5 connections" in sick.findings()["connections"]["what"]


def test_rights_of_the_role(role: Callable[..., str], caplog: pytest.LogCaptureFixture) -> None:
    assert_named(role(rights="SELECT"), "privileges", "INSERT on audit_log", caplog)


def test_a_role_that_may_not_see_the_schema(
    place: Place, role: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    url = role()
    place.run(f"REVOKE USAGE ON SCHEMA core FROM {Database(url).url.username}")
    assert_named(url, "privileges", "USAGE on schema core", caplog)


def test_settings_of_the_database(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    name = Database(place.url).url.database
    place.run(f"ALTER DATABASE {name} SET synchronous_commit = off")
    assert_named(place.url, "synchronous-commit", f"is off for the database '{name}'", caplog)


def test_an_unlogged_table(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.run("ALTER TABLE core.processed_jobs SET UNLOGGED")
    assert_named(place.url, "unlogged", "processed_jobs", caplog)


def test_no_tables(empty_database: str, caplog: pytest.LogCaptureFixture) -> None:
    assert_named(empty_database, "schema", "has no tables", caplog)


def test_tables_of_the_release_before(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    downgrade(place.url, revision="0001")
    assert_named(place.url, "schema-behind", "at 0001, behind this release", caplog)
    with patient(place.url, "memory://") as sick:
        assert {sick.findings()[name]["verdict"] for name in ("beat-seen", "relay-seen")} == {"unknown"}


def test_tables_of_a_newer_release(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.run("UPDATE core.harness_version SET version_num = '9999'")
    assert_named(place.url, "schema-ahead", "at 9999", caplog)


def test_tables_that_are_too_old(
    place: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    downgrade(place.url, revision="0001")
    monkeypatch.setattr("harness.store.revisions.OLDEST", "0002")
    assert_named(place.url, "schema", "works on 0002 and newer", caplog)


def test_a_server_without_fsync(database: str, caplog: pytest.LogCaptureFixture) -> None:
    with patient(database, "memory://") as sick:
        assert sick.findings()["fsync"]["verdict"] == "accepted"
        [found] = [finding for finding in check.diagnose(sick.harness) if finding.name == "fsync"]
        assert (found.verdict, "fsync and full_page_writes are off" in found.what) == ("broken", True)
        refused, lines = start(sick, caplog)
        assert (refused, len(named(lines, "fsync"))) == ("", 1)


def test_settings_of_the_server(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    own = servers.own_postgres(synchronous_commit="remote_write", max_connections="5", transaction_timeout="30s")
    try:
        from tests.services import Databases

        url = Databases(own.url).make()
        run_sql(own.url, "ALTER SYSTEM SET synchronous_standby_names = 'other'")
        run_sql(own.url, "SELECT pg_reload_conf()")
        while run_sql(own.url, "SHOW synchronous_standby_names") != [("other",)]:
            time.sleep(0.05)
        assert_named(url, "synchronous-standby", "is remote_write (command line)", caplog)
        with patient(url, "memory://") as sick:
            found = sick.findings()
        assert "transaction_timeout is 30 s" in found["session-timeouts"]["what"]
        assert "lets this role have 2" in found["connections"]["what"]
    finally:
        servers.discard(own)


def test_another_encoding(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    from harness.store.migrate import upgrade
    from tests.services import with_database

    root = servers.postgres_url()
    run_sql(root, "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    try:
        url = with_database(root, "latin")
        upgrade(url)
        assert_named(url, "encoding", "is LATIN1", caplog)
    finally:
        run_sql(root, "DROP DATABASE latin WITH (FORCE)")


def test_a_database_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    assert_named("postgresql://me:secret@127.0.0.1:1/none", "database", "refused", caplog)


@pytest.mark.parametrize(("hours", "name", "says"), [(0.1, "clock-drift", "360.0 s ahead"), (-7, "clock", "s behind")])
def test_clocks_apart(
    hours: float, name: str, says: str, database: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = server.read
    monkeypatch.setattr(
        server, "read", lambda *where, **how: real(*where, **how, clock=lambda: time.time() + hours * 3600)
    )
    assert_named(database, name, says[-8:], caplog)


class Pooler(socketserver.ThreadingTCPServer):
    """Gives the client a number of its own for its connection, as every pooler does; else it passes on what is said."""

    daemon_threads = True

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.target = (parts.hostname, parts.port)
        super().__init__(("127.0.0.1", 0), Pooled)
        login = parts.netloc.rpartition("@")[0]
        self.url = urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{self.server_address[1]}"))


class Pooled(socketserver.BaseRequestHandler):
    KEY = b"K\x00\x00\x00\x0c"  # BackendKeyData: number and secret of the connection

    def handle(self) -> None:
        assert isinstance(self.server, Pooler)
        with socket.create_connection(self.server.target) as to:
            ends = {self.request: to, to: self.request}
            while True:
                for end in select.select(list(ends), [], [], 30)[0]:
                    if not (data := end.recv(65536)):
                        return
                    if end is to and (at := data.find(self.KEY)) >= 0:
                        data = data[: at + 5] + b"\x00\x00\x00\x01" + data[at + 9 :]
                    ends[end].sendall(data)


def test_a_pooler_in_front(database: str) -> None:
    with patient(database, "memory://") as well:
        assert well.findings()["pooler"]["what"] == ""
    with Pooler(database) as pooler:
        serving = threading.Thread(target=pooler.serve_forever)
        serving.start()
        with patient(pooler.url, "memory://") as well:
            found = well.findings()["pooler"]
            assert (found["verdict"], "A pooler stands in front" in found["what"]) == ("ok", True)
        pooler.shutdown()
        serving.join()


# -- Redis protocol ----------------------------------------------------------------------------------------


@pytest.fixture
def redis_patient(own_redis: Any, sound_database: str) -> Iterator[tuple[Redis, Patient]]:
    with Redis.from_url(own_redis.url) as client, patient(sound_database, own_redis.url) as sick:
        yield client, sick


def test_redis(redis_patient: tuple[Redis, Patient]) -> None:
    client, sick = redis_patient

    def look(name: str) -> tuple[str, str]:
        row = sick.findings()[name]
        return row["verdict"], row["what"]

    names = ("redis-eviction", "redis-persistence", "redis-append-only")
    assert [look(name) for name in names] == [("ok", "")] * 3
    assert look("redis-rights") == look("redis-tracking") == ("ok", "")
    assert sick.report()["code"] == 0

    client.config_set("maxmemory-policy", "allkeys-lru")
    assert look("redis-eviction") == ("ok", "maxmemory-policy is allkeys-lru; there is no maxmemory yet.")
    client.config_set("maxmemory", 100_000_000)
    assert look("redis-eviction") == ("broken", "maxmemory-policy is allkeys-lru; maxmemory is 100000000 bytes.")
    assert sick.report()["code"] == 1
    client.config_set("maxmemory-policy", "noeviction")

    client.config_set("appendfsync", "no")
    assert look("redis-append-only")[0] == "warning"
    client.config_set("appendonly", "no")
    assert look("redis-persistence")[0] == "broken"
    client.config_set("save", "60 1")
    assert (look("redis-persistence")[0], look("redis-append-only")[0]) == ("ok", "warning")

    client.execute_command("ACL", "SETUSER", "default", "-client|tracking")
    assert look("redis-tracking")[0] == "ok"
    assert "does not tell of new messages" in look("redis-tracking")[1]
    assert look("redis-rights") == ("ok", "")

    client.execute_command("ACL", "SETUSER", "default", "-config")
    assert look("redis-persistence") == ("unknown", look("redis-persistence")[1])
    assert "CONFIG is refused" in look("redis-persistence")[1]
    assert look("redis-eviction")[0] == "ok"  # INFO says as much
    client.execute_command("ACL", "SETUSER", "default", "-info")
    assert look("redis-eviction")[0] == "unknown"


#: The line of docs/howto/deploy.md, for the queue of these apps, `billing`.
RIGHTS = (
    "resetkeys ~billing* ~unacked* ~_kombu.* ~*.celery.pidbox* ~celeryev.* &* "
    "-@all +@read +@write +@blocking +@connection +@transaction +@pubsub +@scripting -@dangerous +info +time"
)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("", ""),
        ("-eval -evalsha", "'eval'"),
        ("-rpop", "'rpop'"),
        ("-hdel", "'hdel'"),
        ("-zadd", "'zadd'"),
        ("-publish", "'publish'"),
        ("resetkeys ~billing*", "it needs 'unacked', 'unacked_index'"),
        ("resetkeys ~unacked* ~_kombu.*", "it needs"),
    ],
)
def test_redis_rights(own_redis: Any, sound_database: str, rules: str, said: str) -> None:
    """What it passes a worker can run with; what a worker can't do without, it names."""
    own_redis.client().execute_command("ACL", "SETUSER", "shop", "on", ">shop", *RIGHTS.split(), *rules.split())
    url = own_redis.url.replace(f":{own_redis.password}@", "shop:shop@")
    with patient(sound_database, url) as sick:
        found = sick.findings()["redis-rights"]
    assert found["verdict"] == ("broken" if said else "ok"), found
    assert said in found["what"]
    assert not own_redis.client().keys("*_try*")


def test_redis_with_a_short_visibility_timeout(redis_url: str, sound_database: str) -> None:
    options = {"broker_transport_options": {"visibility_timeout": 60}}
    with patient(sound_database, redis_url, options) as sick:
        found = sick.findings()
        assert found["broker"]["verdict"] == "ok"
        assert found["visibility-timeout"]["verdict"] == "warning"


# -- RabbitMQ ----------------------------------------------------------------------------------------------


def management(servers: Servers) -> tuple[RabbitMQ, str]:
    shared = servers._shared["rabbitmq"]
    assert isinstance(shared, RabbitMQ)
    return shared, f"http://127.0.0.1:{shared.http_port}"


def declare(url: str, **arguments: Any) -> None:
    with Connection(url) as connection:
        Queue("billing", Exchange("billing"), routing_key="billing", queue_arguments=arguments)(
            connection.default_channel
        ).declare()


def test_rabbitmq_quorum_queue_with_a_delivery_limit(rabbitmq_url: str, servers: Servers, sound_database: str) -> None:
    _, api = management(servers)
    declare(rabbitmq_url, **{"x-queue-type": "quorum", "x-delivery-limit": 3})
    with patient(sound_database, rabbitmq_url) as sick:
        found = sick.findings("--management", api)
        assert found["delivery-limit"]["verdict"] == "broken"
        assert "delivers a message 3 times (x-delivery-limit)" in found["delivery-limit"]["what"]
        assert found["queue-policies"]["verdict"] == "ok"
        assert sick.report("--management", api)["code"] == 1

    # The fault is a real one: what goes back to the queue too often is gone.
    with Connection(rabbitmq_url) as connection:
        connection.Producer().publish("job", routing_key="billing", exchange="billing")
        channel = connection.default_channel
        seen = 0
        for _ in range(200):
            if (message := channel.basic_get("billing")) is not None:
                seen += 1
                channel.basic_reject(message.delivery_tag, requeue=True)
            elif seen > 3:
                break
            time.sleep(0.05)
        assert seen == 4
        assert channel.queue_declare("billing", passive=True).message_count == 0


def test_rabbitmq_policies(rabbitmq_url: str, servers: Servers, sound_database: str) -> None:
    broker, api = management(servers)
    vhost = urlsplit(rabbitmq_url).path.lstrip("/")
    with patient(sound_database, rabbitmq_url) as sick:
        assert "Not there yet" in sick.findings("--management", api)["queue-policies"]["what"]
        declare(rabbitmq_url, **{"x-consumer-timeout": 120_000})
        assert sick.report("--management", api)["code"] == 0

        definition = {"message-ttl": 60_000, "max-length": 5}
        broker.api("PUT", f"policies/{vhost}/short", {"pattern": ".*", "apply-to": "queues", "definition": definition})
        deadline = time.monotonic() + 30
        while "short" not in str(found := sick.findings("--management", api)):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert found["queue-drops"]["verdict"] == "broken"
        assert "Queue 'billing' (policy 'short') has x-message-ttl = 60000, x-max-length = 5." in str(found)
        assert found["consumer-timeout"]["verdict"] == "warning"
        assert "pay (300 s)" in found["consumer-timeout"]["what"]


def test_rabbitmq_consumer_timeout_is_assumed(rabbitmq_url: str, sound_database: str) -> None:
    with patient(sound_database, rabbitmq_url, {"task_time_limit": 7200}) as sick:
        found = sick.findings("--management", "http://127.0.0.1:1")
        assert found["consumer-timeout"]["verdict"] == "warning"
        assert "cannot be read over the network" in found["consumer-timeout"]["what"]
        assert found["queue-policies"]["verdict"] == "unknown"
        assert "no management API at http://127.0.0.1:1" in found["queue-policies"]["what"]
        # Another program's port, and a login of the API's own: the broker is there all the same.
        port = urlsplit(rabbitmq_url).port
        found = sick.findings("--management", f"http://ann:s3cret@127.0.0.1:{port}")
        assert found["broker"]["verdict"] == "ok"
        assert f"no management API at http://127.0.0.1:{port} (" in found["queue-policies"]["what"]


def test_the_management_api_and_its_login() -> None:
    from harness.worker.check.rabbitmq import _api

    with Connection("amqp://ann:s3cret@broker//", ssl=True) as connection:
        assert _api(connection, None) == ("https://broker:15671", "ann:s3cret")
    with Connection("amqp://ann:s3cret@broker//") as connection:
        assert _api(connection, None) == ("http://broker:15672", "ann:s3cret")
        assert _api(connection, "http://api:1/x/") == ("http://api:1/x", "ann:s3cret")
        assert _api(connection, "https://bob:p%40ss@api:1") == ("https://api:1", "bob:p@ss")
        with pytest.raises(ValueError, match="Invalid IPv6 URL"):
            _api(connection, "http://[")


def test_rabbitmq_4_has_a_delivery_limit_of_its_own(sound_database: str) -> None:
    from harness.worker.check.facts import Facts
    from harness.worker.check.rabbitmq import RabbitMQ as Seen
    from harness.worker.check.run import findings_of

    conf = {"task_queues": [Queue("billing", queue_arguments={"x-queue-type": "quorum"})]}
    with patient(sound_database, "amqp://127.0.0.1:1//", conf) as sick:
        for version, verdict in (((4, 1, 2), "broken"), ((3, 13, 7), "ok")):
            facts = Facts(sick.harness, sick.harness.settings, rabbitmq=Seen(version, {}))
            assert [f.verdict for f in findings_of(CHECKS["delivery-limit"], facts)] == [verdict]
