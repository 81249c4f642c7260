"""Flower beside the worker: on the loopback address, behind a password, with a memory that outlives a run."""

from __future__ import annotations

import base64
import secrets
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from harness.dev.process import ServiceError, free_port, port_is_free

_ADDRESS = "127.0.0.1"
_PORT = 5555
_USER = "harness"


@dataclass(frozen=True)
class Flower:
    """How to start it: ``arguments`` after ``celery -A app flower``, ``env`` to add; ``url`` is what to open."""

    port: int
    path: str
    arguments: list[str]
    env: dict[str, str]
    url: str
    remark: str

    def answers(self) -> bool:
        """Whether it serves a client now; it, and not another one that was faster to take the port: by our login."""
        request = urllib.request.Request(f"http://{_ADDRESS}:{self.port}/{self.path}workers?json=1")
        if login := self.env.get("FLOWER_BASIC_AUTH"):
            request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=2):
                return True
        except urllib.error.HTTPError as error:
            return error.code in (401, 403) and not login
        except (OSError, HTTPException):
            return False


def plan(folder: Path, env: Mapping[str, str]) -> Flower:
    """Choose port and password. FLOWER_PORT, FLOWER_URL_PREFIX, FLOWER_BASIC_AUTH and FLOWER_AUTH are heeded.

    ``folder``: its own (0700), for password and memory. Both are kept, so that a browser may remember the one and
    the tasks of an earlier run are still to be seen. Raises ServiceError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    wanted = _wanted_port(env)
    port = wanted if port_is_free(wanted) else free_port()
    arguments = [
        f"--address={_ADDRESS}",
        f"--port={port}",
        "--logging=warning",
        "--inspect_timeout=5000",  # ms; a worker that shares a busy machine with all the rest answers later than in one
        "--persistent=True",
        f"--db={folder / 'memory'}",
    ]
    # Without a login Flower shows arguments to every user of the machine, and refuses its buttons (revoke, terminate).
    own = not (env.get("FLOWER_BASIC_AUTH") or env.get("FLOWER_AUTH") or Path("flowerconfig.py").exists())
    login = f"{_USER}:{_password(folder / 'password')}" if own else ""
    prefix = env.get("FLOWER_URL_PREFIX", "").strip("/")
    path = f"{prefix}/" if prefix else ""
    return Flower(
        port=port,
        path=path,
        arguments=arguments,
        env={"FLOWER_BASIC_AUTH": login} if own else {},
        url=f"http://{login}{'@' if own else ''}{_ADDRESS}:{port}/{path}",
        remark="" if port == wanted else f"  (port {wanted} is taken by another program)",
    )


def _wanted_port(env: Mapping[str, str]) -> int:
    text = env.get("FLOWER_PORT") or str(_PORT)
    if not text.isdecimal() or not 0 < int(text) < 65_536:
        raise ServiceError(f"FLOWER_PORT is {text!r}: give a number from 1 to 65535, or unset it")
    return int(text)


def _password(file: Path) -> str:
    if not file.exists():
        draft = file.with_suffix(".new")
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(12))
        draft.replace(file)
    return file.read_text()
