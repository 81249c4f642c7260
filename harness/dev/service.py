"""A server that runs as this process's own child: start, stop, kill, restart.

Each service keeps everything it needs in one folder (0700): ``lock`` (one run at a time), ``state.json``
(port and password, chosen once), ``log``, and its data. It runs in a session of its own, so that a terminal's
Ctrl-C reaches it only through :meth:`Service.stop`, and the kernel ends it when this process dies, whatever
the cause.
"""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import IO, ClassVar, Self

from harness.dev import lock
from harness.dev.process import ServiceError, free_port, port_is_free


class Service(ABC):
    """A server process that this process starts, owns and ends. Also a context manager."""

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    start_timeout: ClassVar[float] = 60.0

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.port = 0
        self.password = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None

    # What a kind of server says about itself.

    @property
    @abstractmethod
    def url(self) -> str:
        """Where a client connects, password included. The same over restarts."""

    @abstractmethod
    def _launch(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Prepare the data and start the server."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether the server serves a client now."""

    # What every server can do.

    @property
    def running(self) -> bool:
        """Whether the process is there: asked by reaping, for a dead child that is not reaped looks alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id. Raises ServiceError when it does not run."""
        if self._process is None or self._process.poll() is not None:
            raise ServiceError(f"{self.name} does not run")
        return self._process.pid

    @property
    def log(self) -> Path:
        """The file that the server's output goes to."""
        return self.folder / "log"

    def start(self) -> Self:
        """Start and wait until it answers; nothing to do when it runs. Raises ServiceError."""
        if self.running:
            return self
        self._take_lock()
        try:
            self._load_state()
            with self.log.open("ab") as log:
                self._process = self._launch(log)
            self._await_answer()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, timeout: float = 30.0) -> None:
        """End it in good order, by force after ``timeout`` seconds, and give the folder free."""
        if self._process is not None:
            for number, patience in (
                (self.stop_signal, timeout),
                (signal.SIGQUIT, 5.0),
                (signal.SIGKILL, None),
            ):
                if self._process.poll() is not None:
                    break
                self._process.send_signal(number)
                try:
                    self._process.wait(patience)
                except subprocess.TimeoutExpired:
                    continue
            self._process = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def kill(self) -> None:
        """SIGKILL, like a crash. The folder stays ours; ``start`` brings back what was committed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self) -> Self:
        """Stop in good order and start again at the same address."""
        self.stop()
        return self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        self._lock = lock.take(self.folder)

    def _load_state(self) -> None:
        """Take the remembered port and password, or choose and remember them."""
        path = self.folder / "state.json"
        state = json.loads(path.read_text()) if path.exists() else {}
        self.password = state.get("password") or secrets.token_urlsafe(24)
        self.port = state.get("port") or free_port()
        self._settle()
        if not port_is_free(self.port):
            self.port = free_port()
        wanted = {"port": self.port, "password": self.password}
        if state != wanted:
            draft = path.with_suffix(".new")
            draft.touch(mode=0o600)
            draft.write_text(json.dumps(wanted))
            draft.replace(path)

    def _settle(self) -> None:
        """Wait for what an earlier run left behind (its parent may have been killed a moment ago)."""
        deadline = time.monotonic() + 5
        while not port_is_free(self.port) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _await_answer(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + self.start_timeout
        problem = ""
        while not self._answers():
            if self._process.poll() is not None:
                raise ServiceError(f"{self.name} ended with status {self._process.returncode}:\n{self._log_tail()}")
            if time.monotonic() > deadline:
                problem = f"does not answer after {self.start_timeout:g} s"
            if problem:
                raise ServiceError(f"{self.name} {problem}:\n{self._log_tail()}")
            time.sleep(0.03)

    def _log_tail(self, lines: int = 15) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join([*text.splitlines()[-lines:], f"(whole log: {self.log})"])
