"""compose.yaml as processes: each service's command, environment and healthcheck, with the hosts of real servers."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from ruamel.yaml import YAML

from harness.dev.process import free_port, spawn
from tests.worker.running import ROOT

COMPOSE: dict[str, Any] = YAML(typ="safe").load(ROOT / "compose.yaml")
CONTAINERFILE = (ROOT / "Containerfile").read_text()
SERVICES: dict[str, Any] = COMPOSE["services"]
#: What runs our image, by service.
OURS = {name: service for name, service in SERVICES.items() if "build" in service}


def instruction(name: str) -> list[str]:
    """The arguments of each instruction `name` of the Containerfile, with continued lines joined."""
    text = re.sub(r"\\\n", " ", CONTAINERFILE)
    return [line.split(maxsplit=1)[1] for line in text.splitlines() if line.split(maxsplit=1)[:1] == [name]]


def image_command(service: Mapping[str, Any]) -> list[str]:
    """What the container's process 1 is."""
    entrypoint = service.get("entrypoint", json.loads(instruction("ENTRYPOINT")[0]))
    return [*entrypoint, *service.get("command", json.loads(instruction("CMD")[0]))]


def make_image_folder(folder: Path) -> Path:
    """The files that the image's last stage copies from this repository, where it copies them to."""
    folder.mkdir()
    for arguments in instruction("COPY"):
        if "--from" in arguments or arguments.split()[0] in ("pyproject.toml", "alembic", "harness"):
            continue
        *sources, target = arguments.split()
        for source in sources:
            place = folder / target / Path(source).name if target.endswith("/") else folder / target
            place.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, place)
    return folder


@dataclass
class Stack:
    """The services on one PostgreSQL and one RabbitMQ. `secrets`: what deploy/make-env has written."""

    folder: Path
    secrets: Path
    database: str
    broker: str
    port: int = field(default_factory=free_port)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.image = make_image_folder(self.folder / "app")
        (self.folder / "beat").mkdir()

    def environment(self, name: str) -> dict[str, str]:
        """Of the service: its env_file, then its `environment`; with the test's servers instead of compose's."""
        values: dict[str, str] = {}
        for path in SERVICES[name].get("env_file", ()):
            lines = (self.secrets / Path(path).name).read_text().splitlines()
            values |= dict(line.split("=", 1) for line in lines)
        values |= SERVICES[name].get("environment", {})
        assert values["HARNESS_DATABASE_URL"].endswith("@postgres:5432/ledger")
        assert values["CELERY_BROKER_URL"].endswith("@rabbitmq:5672//")
        values |= {"HARNESS_DATABASE_URL": self.database, "CELERY_BROKER_URL": self.broker}
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("HARNESS", "CELERY", "FLOWER"))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return clean | {"PATH": path, "HOSTNAME": socket.gethostname(), "PYTHONUNBUFFERED": "1"} | values

    def here(self, words: list[str]) -> list[str]:
        """A command with this machine's ports and folders; `$$` is compose's way to write `$`."""
        places = {"/var/lib/beat": str(self.folder / "beat"), "5555": str(self.port), "0.0.0.0": "127.0.0.1", "$$": "$"}
        for place, there in places.items():
            words = [word.replace(place, there) for word in words]
        return words

    def run(self, name: str) -> subprocess.CompletedProcess[str]:
        """A one-shot service to its end."""
        return self._run(self.here(image_command(SERVICES[name])), name)

    def healthy(self, name: str) -> bool:
        """Does its healthcheck say so?"""
        kind, *words = SERVICES[name]["healthcheck"]["test"]
        command = self.here(["/bin/sh", "-c", *words] if kind == "CMD-SHELL" else words)
        return self._run(command, name).returncode == 0

    def start(self, name: str) -> None:
        """In the foreground of a session of its own; it dies with the tests."""
        program, *words = self.here(image_command(SERVICES[name]))
        environment = self.environment(name)
        found = shutil.which(program, path=environment["PATH"])
        assert found, program
        with self.log(name).open("wb") as out:
            self.running[name] = spawn(
                [found, *words], folder=self.image, death_signal=signal.SIGKILL, output=out, env=environment
            )

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def text(self, name: str) -> str:
        return self.log(name).read_text(errors="replace")

    def stop(self, name: str, seconds: float = 120) -> int:
        """As `docker stop` does: SIGTERM to process 1 alone. Its exit code; a process that stays is an error."""
        process = self.running[name]
        process.send_signal(signal.SIGTERM)
        return process.wait(seconds)

    def close(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
                process.kill()
                process.wait(10)

    def _run(self, command: list[str], name: str) -> subprocess.CompletedProcess[str]:
        environment = self.environment(name)
        return subprocess.run(
            command, cwd=self.image, env=environment, check=False, capture_output=True, text=True, timeout=240
        )
