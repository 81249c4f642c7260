"""The processes of a worker: `celery worker` with its pool and its relay, started, killed and watched."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.dev.process import spawn
from harness.testing import failpoints, launch
from harness.testing.failpoints import FailPoint, Fault

_numbers = itertools.count(1)


class WorkerFailed(AssertionError):
    """The worker did not start, or has ended by itself; the message has the end of its log."""


class WorkerProcess:
    """`celery -A app worker` as a process of its own, with fail points; see `Worker`."""

    def __init__(
        self,
        app: str,
        folder: Path,
        *,
        broker_url: str,
        database_url: str,
        service: str,
        schema: str = "core",
        concurrency: int = 1,
        longest_wait: float | None = 0.2,
        settings: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.app, self.folder, self.service, self.schema = app, folder, service, schema
        self.log, self.ready = folder / "log", folder / "ready"
        self.points = folder / "points"
        self.process: subprocess.Popen[bytes] | None = None
        self._killed = False
        self.database_url = database_url
        self._options = ["-c", str(concurrency), "-l", "INFO", "--without-gossip", "--without-mingle", *options]
        self._environment = os.environ | {
            "CELERY_BROKER_URL": broker_url,
            "HARNESS_DATABASE_URL": database_url,
            launch.READY: str(self.ready),
            launch.PATH: json.dumps([entry or os.getcwd() for entry in sys.path]),
            launch.SETTINGS: json.dumps({"harness_relay_poll": 0.1} | dict(settings or {})),
            failpoints.VARIABLE: str(self.points),
            **({} if longest_wait is None else {launch.LONGEST_WAIT: str(longest_wait)}),
            **(environment or {}),
        }

    def start(self, seconds: float = 60.0) -> Self:
        """Start it and wait until it consumes; also after it was killed. WorkerFailed where it does not."""
        self.points.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.ready.unlink(missing_ok=True)
        name = f"test{os.getpid()}-{next(_numbers)}@localhost"
        command = [sys.executable, "-m", "harness.testing.launch", "-A", self.app, "worker", "-n", name]
        self._killed = False
        with self.log.open("ab") as output:
            self.process = spawn(
                [*command, *self._options],
                folder=Path.cwd(),
                death_signal=signal.SIGTERM,
                output=output,
                env=self._environment,
            )
        try:
            self.until(self.ready.exists, seconds, "the worker is ready")
        except BaseException:
            self.kill()
            raise
        return self

    @property
    def pid(self) -> int:
        """The parent's process id, which is also that of its process group."""
        if self.process is None:
            raise WorkerFailed("the worker was never started")
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Does its parent process run?"""
        return self.process is not None and self.process.poll() is None

    def stop(self, seconds: float = 15.0) -> None:
        """Warm shutdown: what is at work ends. SIGKILL to what is left after so many seconds."""
        if self.process is None:
            return
        if self.alive:
            self.process.terminate()
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                pass
        self.kill()

    def kill(self) -> None:
        """SIGKILL to the parent, its children and the relay at once, as by a power cut."""
        if self.process is None or self._killed:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(10)
        self._killed = True  # the group's number may be another one's from now on

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def text(self) -> str:
        """All that it has logged so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def fail(self, point: str, fault: Fault | str, *, job_id: str | None = None, times: int = 1) -> FailPoint:
        """Let `fault` happen when a job comes to `point` (see `harness.testing.POINTS`): `job_id`'s, or any.

        It happens `times` times. ValueError for a point that there is not, or where the fault can't be.
        """
        return failpoints.arm(self.points, point, fault, job_id, times)

    def until(self, condition: Callable[[], Any], seconds: float = 30.0, what: str = "the condition holds") -> Any:
        """Wait until `condition()` is true and return it; WorkerFailed with the log when it never is, or at once when
        the worker has ended by itself, unless a fail point has killed it."""
        __tracebackhide__ = True
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            if not self.alive and not any(self.points.glob("*.fired")):
                status = None if self.process is None else self.process.poll()
                raise WorkerFailed(f"the worker has ended, with status {status}, before {what}.\n{self._tail()}")
            if time.monotonic() > deadline:
                raise WorkerFailed(f"not within {seconds:g} s: {what}.\n{self._tail()}")
            time.sleep(0.05)
        return value

    def _tail(self, lines: int = 40) -> str:
        return "\n".join([f"The worker's log ends with ({self.log}):", *self.text().splitlines()[-lines:]])
