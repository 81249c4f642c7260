"""Child processes that can't outlive this one, and the ports that they listen on."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

_LAUNCHER = Path(__file__).with_name("child.py")


class ServiceError(RuntimeError):
    """A server could not be had or did not start; the message says what to do."""


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that nobody listens on.

    Below the range that the kernel gives to outgoing connections: clients that reconnect in a loop while the
    server is down would otherwise be given its very port, connect to themselves and keep it.
    """
    for _ in range(200):
        port = random.randrange(15000, 32000)
        if port_is_free(port, host):
            return port
    raise ServiceError(f"no free TCP port on {host} in 15000-31999")


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError:
            return False
    return True


def spawn(
    command: list[str],
    *,
    folder: Path,
    death_signal: signal.Signals,
    output: int | IO[bytes],
    user: tuple[int, int] | None = None,
    env: dict[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a program (absolute path) in its own session; it gets ``death_signal`` when this process dies.

    Only from the main thread: the kernel takes the *thread* that forked for the parent.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("start services from the main thread: they die with the thread that started them")
    uid, gid = user or ("-", "-")
    launcher = [
        sys.executable,
        "-I",
        "-S",
        str(_LAUNCHER),
        str(os.getpid()),
        str(int(death_signal)),
        str(uid),
        str(gid),
    ]
    return subprocess.Popen(
        [*launcher, str(folder), "--", *command],
        stdin=stdin,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=env,
    )
