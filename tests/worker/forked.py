"""`celery …` in a process that is forked off one which has imported Celery's command, and with it the harness.

Hundreds of workers are started; each would import all that for a second of a processor. What is forked runs the
command's own entry with its own environment, in a session of its own, as after exec. Where a start is the subject, and
in the soak, it is a whole one.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path

_fork_server = multiprocessing.get_context("forkserver")
_fork_server.set_forkserver_preload(["celery.bin.celery", __name__])


class Forked:
    """A started process, with what of `subprocess.Popen` the tests use. `errors`: another file for its stderr."""

    def __init__(
        self, arguments: list[str], folder: Path, environment: Mapping[str, str], log: Path, errors: Path | None = None
    ) -> None:
        # A daemon, so that it does not outlive the tests' process, nor keep that from its end.
        self._process = _fork_server.Process(
            target=_run,
            args=(arguments, folder, dict(environment), log, errors or log),
            name="MainProcess",
            daemon=True,
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid
        while self.poll() is None and not _leads_its_session(self.pid):
            time.sleep(0.002)

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("celery", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def celery(
    arguments: list[str], environment: Mapping[str, str], folder: Path, timeout: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """`celery …` until it has ended: exit code and output. TimeoutExpired when it takes longer."""
    with tempfile.TemporaryDirectory() as name:
        output, errors = Path(name, "output"), Path(name, "errors")
        process = Forked(arguments, folder, environment, output, errors)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        return subprocess.CompletedProcess(arguments, code, output.read_text(), errors.read_text())


def _leads_its_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def _run(arguments: list[str], folder: Path, environment: dict[str, str], log: Path, errors: Path) -> None:
    for number, file in ((1, log), (2, errors)):
        opened = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if action := environment.get("PYTHONWARNINGS"):
        warnings.simplefilter(action)  # which Python has read at its start
    sys.argv = ["celery", *arguments]
    from celery.__main__ import main

    try:
        main()
    finally:
        atexit._run_exitfuncs()
