"""What a person does to the letters of the tests' worker."""

from tests.worker.forked import celery
from tests.worker.running import ROOT, Worker


def operate(worker: Worker, *command: str) -> None:
    """A person's command."""
    ended = celery(["-A", worker.app, "harness", "dead-letters", *command], worker.environment, ROOT)
    assert ended.returncode == 0, ended.stdout + ended.stderr
