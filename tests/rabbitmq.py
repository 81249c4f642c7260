"""A private RabbitMQ for the tests, from the Debian package."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, Any, ClassVar

from harness.dev.process import ServiceError, free_port, spawn
from harness.dev.service import Service

HOW_TO_GET = "rabbitmq-server is not installed (apt-get install rabbitmq-server)"

# Not what is on the PATH: Debian's wrapper there becomes the user of the system's broker and uses its files.
_SCRIPTS = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "/opt/homebrew/sbin/rabbitmq-server")

_CONFIG = """\
listeners.tcp.local = 127.0.0.1:{port}
management.tcp.ip = 127.0.0.1
management.tcp.port = {http_port}
default_user = harness
default_pass = {password}
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 1GB
collect_statistics_interval = 1000
log.console = true
log.console.level = warning
log.file = false
"""


# One scheduler, few threads: the tests' processes need the processors more.
_ERL_ARGS = "+S 1:1 +SDio 1 +A 4 -kernel inet_dist_use_interface {127,0,0,1}"


def find_server() -> str | None:
    """The server's start script, or None where RabbitMQ is not installed."""
    if shutil.which("erl") is None or shutil.which("epmd") is None:
        return None
    return next((script for script in _SCRIPTS if os.access(script, os.X_OK)), None)


class RabbitMQ(Service):
    """A node of its own, with its own epmd, cookie and files; listens on 127.0.0.1 only."""

    name: ClassVar[str] = "rabbitmq"
    start_timeout: ClassVar[float] = 120.0

    def __init__(self, folder: Path, settings: str = "") -> None:
        super().__init__(folder)
        self.settings = settings
        self.http_port = 0
        self._epmd: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """``amqp://…//``, the default virtual host."""
        return self.vhost_url("/")

    def vhost_url(self, vhost: str) -> str:
        """The URL of a virtual host."""
        return f"amqp://harness:{self.password}@127.0.0.1:{self.port}/{vhost}"

    def add_vhost(self, name: str) -> str:
        """Make a virtual host; returns its URL."""
        self.api("PUT", f"vhosts/{name}")
        self.api("PUT", f"permissions/{name}/harness", {"configure": ".*", "write": ".*", "read": ".*"})
        return self.vhost_url(name)

    def remove_vhost(self, name: str) -> None:
        """Remove a virtual host with its queues; closes its connections."""
        self.api("DELETE", f"vhosts/{name}")

    def api(self, method: str, path: str, body: object = None) -> Any:
        """Call the management API: ``api("GET", "queues/%2F")``. Raises urllib.error.HTTPError."""
        secret = base64.b64encode(f"harness:{self.password}".encode()).decode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http_port}/api/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Basic {secret}"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=20) as response:
            text = response.read()
        return json.loads(text) if text else None

    def stop(self, timeout: float = 30.0) -> None:
        """See Service.stop; also ends the epmd that belongs to this node."""
        super().stop(timeout)
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None

    def _launch(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        script = find_server()
        if script is None:
            raise ServiceError(HOW_TO_GET)
        self.http_port = self.http_port or free_port()
        config = self.folder / "rabbitmq.conf"
        config.touch(mode=0o600)
        config.write_text(_CONFIG.format(port=self.port, http_port=self.http_port, password=self.password))
        (self.folder / "advanced.config").write_text(f"[{{rabbit, [{self.settings}]}}].\n")
        (self.folder / "plugins").write_text("[rabbitmq_management].\n")
        epmd_port = self._start_epmd(log)
        env = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.folder),  # the Erlang cookie
            "RUNNING_UNDER_SYSTEMD": "true",  # the script then becomes the server instead of watching it
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(epmd_port),
            "ERL_CRASH_DUMP": str(self.folder / "erl_crash.dump"),
            "RABBITMQ_NODENAME": "harness@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(self.folder / "generated"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _ERL_ARGS,
        }
        return spawn([script], folder=self.folder, death_signal=signal.SIGKILL, output=log, env=env)

    def _start_epmd(self, log: IO[bytes]) -> int:
        """Erlang's name server. Left to itself RabbitMQ starts one that stays for ever, on all interfaces."""
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
        port = free_port()
        command = [str(shutil.which("epmd")), "-address", "127.0.0.1", "-port", str(port)]
        self._epmd = spawn(command, folder=self.folder, death_signal=signal.SIGKILL, output=log)
        while self._epmd.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                continue
            return port
        raise ServiceError(f"epmd ended with status {self._epmd.returncode}:\n{self._log_tail()}")

    def _answers(self) -> bool:
        try:
            self.api("GET", "overview")
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as client:
                client.sendall(b"AMQP\x00\x00\x09\x01")
                return bool(client.recv(1))
        except (OSError, urllib.error.URLError):
            return False
