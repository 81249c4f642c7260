"""The tutorial, followed to the letter: its files, its commands, its output, on `harness dev`."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.pages import DOCS, Block, alike, blocks

PATIENCE = 180.0


class Reader:
    """Someone with two terminals in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        unset = ("HARNESS_DATABASE_URL", "CELERY_BROKER_URL", "HARNESS_DEV_FOLDER")
        self.env = {k: v for k, v in os.environ.items() if k not in unset} | {"PATH": path, "COLUMNS": "80"}

    def run(self, line: str) -> str:
        """One command of the second terminal, which has read the file of `harness dev`."""
        script = f"set -e; [ ! -e .harness/env ] || . .harness/env; {line}"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def follow(self, block: Block, expected: str | None) -> None:
        """Run a block. The last command, which looks, is repeated until the worker has done what it waits for."""
        *first, last = block.lines
        before = "".join(self.run(line) for line in first)
        out = before + self.run(last)
        deadline = time.monotonic() + PATIENCE
        while expected is not None and alike(out) != alike(expected) and time.monotonic() < deadline:
            assert re.search(r"(points|list)$", last), f"{out}\nis not\n{expected}"
            out = before + self.run(last)
        if expected is not None:
            assert alike(out) == alike(expected)

    @contextmanager
    def background(self, line: str) -> Iterator[None]:
        log = self.folder / "first-terminal.log"
        with log.open("w") as output:
            # Without Flower, whose fixed port another run on this machine may have.
            command = [*line.split(), "--no-flower"]
            process = subprocess.Popen(command, cwd=self.folder, env=self.env, stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + PATIENCE
            while "ready." not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            yield
            assert process.poll() is None, log.read_text()
            text = log.read_text()
            assert "completed job_id=order-1" in text
            assert "duplicate job_id=order-1" in text
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def test_the_tutorial(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    todo = blocks(DOCS / "tutorial.md")
    [start] = [number for number, block in enumerate(todo) if block.mark == "in the background"]
    for block in todo[:start]:
        if block.title:
            (tmp_path / block.title).write_text(block.text)
    with reader.background(todo[start].lines[0]):
        rest = todo[start + 1 :]
        for block, after in zip(rest, [*rest[1:], None], strict=True):
            if block.language == "sh" and block.runs:
                reader.follow(block, after.text if after is not None and after.language == "text" else None)
