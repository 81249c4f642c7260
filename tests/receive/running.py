"""A receiver as a process, and messages for its sources."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.worker.forked import Forked
from tests.worker.running import ROOT, until
from tests.worker.wires import Raw


def environment(broker: str, database: str, **settings: Any) -> dict[str, str]:
    return os.environ | {
        "BROKER_URL": broker,
        "HARNESS_DATABASE_URL": database,
        "TEST_SETTINGS": json.dumps(settings),
        "PYTHONWARNINGS": "default",
    }


class Receiver:
    """`celery -A tests.receive.app harness receive`."""

    def __init__(self, broker: str, database: str, log: Path, *sources: str, **settings: Any) -> None:
        self.environment = environment(broker, database, **settings)
        self.log = log
        self.command = ["-A", "tests.receive.app", "harness", "receive"]
        for source in sources:
            self.command += ["--source", source]
        self.process: Forked | None = None

    def launch(self) -> Forked:
        """Start it; it may die at once."""
        with self.log.open("ab") as out:
            self.offset = out.tell()
        self.process = Forked(self.command, ROOT, self.environment, self.log)
        return self.process

    def start(self) -> Receiver:
        """Start it and wait until it takes messages."""
        process = self.launch()
        until(lambda: self.says("receive: ready") or process.poll() is not None, 60, f"ready, see {self.log}")
        assert process.poll() is None, self.text()[-3000:]
        return self

    def text(self) -> str:
        """What it has logged since it started."""
        return self.log.read_bytes()[self.offset :].decode(errors="replace")

    def says(self, part: str) -> int:
        return self.text().count(part)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)


def message(message_id: str | None, item: str = "tea", **more: Any) -> Raw:
    """For the sources `orders` and `routed`."""
    properties = {} if message_id is None else {"message_id": message_id}
    return Raw(json.dumps({"item": item, **more}).encode(), properties=properties)
