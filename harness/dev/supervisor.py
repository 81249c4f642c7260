"""``celery -A app harness dev``: everything that an app needs, in the foreground, ended by one Ctrl-C."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import util
from pathlib import Path
from types import FrameType

from harness.dev import flower
from harness.dev.configured import BROKER, DATABASE, RESULTS, configured, whose, without_password
from harness.dev.envfile import EnvFile
from harness.dev.lock import take
from harness.dev.output import Program, say
from harness.dev.postgres import Postgres
from harness.dev.process import ServiceError
from harness.dev.service import Service
from harness.dev.valkey import Valkey
from harness.store.database import with_driver

#: Seconds until a worker, or Flower, that is not ready yet is no longer waited for.
_PATIENCE = 60.0


def run(app_name: str, *, data: Path, pool_size: int = 2, flower: bool | None = None, embedded: bool = False) -> int:
    """Run PostgreSQL, a broker, worker (its relay and receiver with it), beat and Flower until Ctrl-C or SIGTERM.

    ``app_name``: as for ``celery -A``. ``data``: folder of the embedded servers. ``pool_size``: processes of
    the worker. ``flower``: None = if it is installed. A server that the environment or the app's configuration
    names is used instead of an embedded one, but with ``embedded``. Returns the exit code: 0 when told to stop, 1 when
    a part failed.
    """
    return _Run(app_name, Path(data), pool_size, flower, embedded).run()


class _Stopped(Exception):
    """Told to stop while still starting."""


class _Run:
    def __init__(self, app_name: str, data: Path, pool_size: int, flower: bool | None, embedded: bool) -> None:
        self._app_name = app_name
        self._embedded = embedded
        self._data = data.absolute()
        self._pool_size = pool_size
        self._flower = util.find_spec("flower") is not None if flower is None else flower
        self._env = dict(os.environ)
        self._env_file = EnvFile(self._data)
        self._signals = 0
        self._services: list[Service] = []
        self._programs: list[Program] = []

    def run(self) -> int:
        with self._signals_counted():
            lock = None
            try:
                lock = take(self._data)
                self._start_servers()
                self._migrate()
                self._start_programs()
                return self._watch()
            except _Stopped:
                return 0
            except ServiceError as error:
                say("dev", f"error: {error}")
                return 1
            finally:
                if lock is not None:
                    self._stop()
                    lock.close()

    @contextmanager
    def _signals_counted(self) -> Iterator[None]:
        def count(number: int, frame: FrameType | None) -> None:
            self._signals += 1

        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, count) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _check_stop(self) -> None:
        if self._signals:
            raise _Stopped

    def _start_servers(self) -> None:
        self._env_file.forget(self._env)
        _tell("data", f"{_short(self._data)}  (of the servers that start here, and of beat and Flower)")
        found = configured(self._app_name)
        database, broker = (None, None) if self._embedded else (found.database, found.broker)
        if database is None:
            self._start_server(postgres := Postgres(self._data / "postgres"))
            self._env[DATABASE] = with_driver(postgres.url).render_as_string(hide_password=False)
        else:
            _tell("postgres", f"{whose(DATABASE)}, {without_password(database)}")
        if broker is None:
            self._start_server(valkey := Valkey(self._data / "valkey"))
            self._env |= dict.fromkeys((BROKER, *found.apart), valkey.url)
        else:
            _tell("broker", f"{whose(BROKER)}, {without_password(broker)}")
        if found.results and self._embedded:
            self._env[RESULTS] = valkey.url.rpartition("/")[0] + "/1"
            _tell("results", "with the broker")
        elif found.results:
            _tell("results", f"the configured backend, {without_password(found.results)}")
        if self._services:
            self._env_file.write(self._env)

    def _start_server(self, service: Service) -> None:
        service.start()
        self._services.append(service)
        _tell(service.name, f"127.0.0.1:{service.port}  (log: {_short(service.log)})")
        self._check_stop()

    def _celery(self, name: str, *arguments: str, mark: str = "", env: dict[str, str] | None = None) -> Program:
        program = Program(name, ["celery", "-A", self._app_name, *arguments], self._env | (env or {}), mark)
        self._programs.append(program)
        return program

    def _await(self, program: Program, ready: Callable[[], bool]) -> str:
        """Wait until it is ready, has ended or has taken too long; says which, empty for ready."""
        deadline = time.monotonic() + _PATIENCE
        while not ready() and program.status is None and time.monotonic() < deadline:
            self._check_stop()
            time.sleep(0.05)
        if program.status is not None:
            return f"  (ended with status {program.status})"
        return "" if ready() else f"  (not ready after {_PATIENCE:g} s)"

    def _migrate(self) -> None:
        program = self._celery("migrate", "harness", "migrate")
        program.show()
        while program.status is None:
            self._check_stop()
            time.sleep(0.05)
        program.end(hurry=lambda: True)
        self._programs.remove(program)
        if program.status:
            own = any(isinstance(service, Postgres) for service in self._services)
            hint = "" if own else "; to use servers that come along instead of the configured ones: --embedded"
            raise ServiceError(f"the database could not be migrated (status {program.status}){hint}")

    def _start_programs(self) -> None:
        """Their lines come below the addresses, when all of them are up or one of them is not."""
        self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
        size = f"--concurrency={self._pool_size}"
        worker = self._celery("worker", "worker", "--loglevel=INFO", "--task-events", size, mark=" ready.")
        schedule = f"--schedule={self._data / 'celerybeat-schedule'}"
        self._celery("beat", "beat", "--loglevel=INFO", schedule, "--pidfile=")
        late = self._await(worker, worker.ready.is_set)
        _tell("worker", f"{self._pool_size} process{'es' if self._pool_size > 1 else ''}, and a relay{late}")
        _tell("beat", "the schedule of the app, and the harness's own")
        if self._flower and worker.status is None:
            self._start_flower()
        if self._services:
            _tell("shells", f". {shlex.quote(_short(self._env_file.path))}  (in another shell: the same servers)")
        say("dev", "started; Ctrl-C stops all")
        for program in self._programs:
            program.show()

    def _start_flower(self) -> None:
        # After the worker: it asks the workers who they are once, at its start, and warns where none answers.
        its = flower.plan(self._data / "flower", self._env)
        program = self._celery("flower", "flower", *its.arguments, env=its.env)
        late = self._await(program, its.answers)
        _tell("flower", its.url + its.remark + late)

    def _watch(self) -> int:
        """Wait for a signal (0) or for a part that ends by itself (1)."""
        while not self._signals:
            dead = [f"{service.name} (see {service.log})" for service in self._services if not service.running]
            dead += [f"{p.name} (status {p.status})" for p in self._programs if p.status is not None]
            if dead and not self._signals:
                say("dev", f"ended unexpectedly: {', '.join(dead)}; stopping all")
                return 1
            time.sleep(0.2)
        return 0

    def _stop(self) -> None:
        """First who sends work, then who does it, then what they stand on. A second signal hurries."""
        before = self._signals
        if self._programs:
            say("dev", "stopping; Ctrl-C once more kills what has not ended (its jobs run again)")
        for program in reversed(self._programs):
            say("dev", f"stopping {program.name}")
            program.end(hurry=lambda: self._signals > before)
        for service in reversed(self._services):
            say("dev", f"stopping {service.name}")
            service.stop()
        if self._services:
            self._env_file.remove()
        say("dev", "stopped")


def _tell(name: str, text: str) -> None:
    say("dev", f"{name:<9} {text}")


def _short(path: Path) -> str:
    return min(os.path.relpath(path), str(path), key=len)
