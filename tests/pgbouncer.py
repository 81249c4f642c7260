"""A private pgbouncer in transaction mode for the tests, from the Debian package."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from contextlib import closing
from pathlib import Path
from typing import IO, Any, ClassVar
from urllib.parse import urlsplit, urlunsplit

import psycopg2

from harness.dev.process import ServiceError, spawn
from harness.dev.service import Service

HOW_TO_GET = "pgbouncer is not installed (apt-get install pgbouncer)"

#: Three connections for whatever number of clients: each transaction goes to the one that is free.
_CONFIG = """\
[databases]
{name} = host={host} port={port} dbname={name} user={user} password='{password}'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
max_client_conn = 200
server_check_query =
admin_users = harness
"""


def find_pgbouncer() -> str | None:
    """The program, or None where it is not installed."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class PgBouncer(Service):
    """In front of the database of `to`, a URL with its password."""

    name: ClassVar[str] = "pgbouncer"

    def __init__(self, folder: Path, to: str) -> None:
        super().__init__(folder)
        self.to = urlsplit(to)

    @property
    def database(self) -> str:
        """Its name."""
        return self.to.path.lstrip("/")

    @property
    def url(self) -> str:
        """That of the database, through here."""
        return urlunsplit(self.to._replace(netloc=f"{self.to.username}@127.0.0.1:{self.port}"))

    def show(self, what: str) -> list[dict[str, Any]]:
        """pgbouncer's own figures: `show("stats")`."""
        address = self.to._replace(netloc=f"harness@127.0.0.1:{self.port}", path="/pgbouncer")
        with closing(psycopg2.connect(urlunsplit(address))) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(f"SHOW {what.upper()}")
                assert cursor.description is not None
                return [dict(zip([one.name for one in cursor.description], row, strict=True)) for row in cursor]

    def _launch(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        program = find_pgbouncer()
        if program is None:
            raise ServiceError(HOW_TO_GET)
        config, user = self.folder / "pgbouncer.ini", None
        config.touch(mode=0o600)
        config.write_text(
            _CONFIG.format(
                name=self.database,
                host=self.to.hostname,
                port=self.to.port,
                user=self.to.username,
                password=self.to.password,
                own_port=self.port,
            )
        )
        if os.getuid() == 0:  # it refuses to run as root
            nobody = pwd.getpwnam("nobody")
            user = nobody.pw_uid, nobody.pw_gid
            os.chown(self.folder, *user)
            os.chown(config, *user)
        return spawn([program, "pgbouncer.ini"], folder=self.folder, death_signal=signal.SIGTERM, output=log, user=user)

    def _answers(self) -> bool:
        try:
            psycopg2.connect(self.url, connect_timeout=5).close()
        except psycopg2.OperationalError:
            return False
        return True
