"""What a person does to the letters of the tests' worker."""

import subprocess
import sys

from tests.worker.running import ROOT, Worker


def operate(worker: Worker, *command: str) -> None:
    """A person's command."""
    ended = subprocess.run(
        [sys.executable, "-m", "celery", "-A", worker.app, "harness", "dead-letters", *command],
        cwd=ROOT,
        env=worker.environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
