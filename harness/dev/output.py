"""One program among several on one terminal: started, its lines marked with its name, ended."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from harness.dev.process import spawn

#: So many lines are held back at most.
HELD = 1000
_ALARM = re.compile(r"\b(ERROR|CRITICAL)\b")
_printing = threading.Lock()


def say(name: str, text: str) -> None:
    """Print a line in the name of one part. Never fails: the terminal may be gone when all must be stopped."""
    with _printing, contextlib.suppress(OSError, ValueError):
        print(f"{name:>8} | {text}", flush=True)


class Program:
    """A Python module as a child process: ``Program("beat", ["celery", "-A", "app", "beat"], env)``.

    Its lines are held back until ``show()``, or until one of them is an error. ``ready`` is set when one of them ends
    with ``mark``, or it has ended.
    """

    def __init__(self, name: str, module: list[str], env: dict[str, str], mark: str = "") -> None:
        self.name = name
        self.ready = threading.Event()
        self._mark = mark
        self._held: list[str] | None = []
        self._holding = threading.Lock()
        # SIGKILL when we die: nothing is left to talk to then; a worker would wait for its broker for ever.
        self._process = spawn(
            [sys.executable, "-m", *module],
            folder=Path.cwd(),
            death_signal=signal.SIGKILL,
            output=subprocess.PIPE,
            env=env | {"PYTHONUNBUFFERED": "1"},
        )
        self._reader = threading.Thread(target=self._read, name=f"output of {name}", daemon=True)
        self._reader.start()

    @property
    def status(self) -> int | None:
        """The exit status, None while it runs."""
        return self._process.poll()

    def show(self) -> None:
        """Print what was held back, and from now on every line as it comes."""
        with self._holding:
            self._let_through()

    def _let_through(self) -> None:
        held, self._held = self._held or [], None
        for text in held:
            say(self.name, text)

    def end(self, hurry: Callable[[], bool], patience: float = 30.0) -> None:
        """SIGTERM; SIGKILL to its whole group after ``patience`` seconds or when ``hurry()`` says so."""
        self.show()
        if self.status is None:
            self._process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + patience
        while self.status is None and time.monotonic() < deadline and not hurry():
            time.sleep(0.05)
        if self.status is None:
            why = "a second signal asked for it" if hurry() else f"it had not ended after {patience:g} s"
            say("dev", f"killing {self.name}: {why}")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(2)
        if self._process.stdout is not None and not self._reader.is_alive():
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._take(line.decode(errors="replace").rstrip())
        self.ready.set()

    def _take(self, text: str) -> None:
        with self._holding:
            if self._held is None:
                say(self.name, text)
            else:
                self._held.append(text)
                if len(self._held) > HELD or _ALARM.search(text):
                    self._let_through()
        if self._mark and text.endswith(self._mark):
            self.ready.set()
