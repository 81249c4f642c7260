"""The processes that are measured: one worker per variant, and how much processor time each has used."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from harness.dev.process import ServiceError, spawn

ROOT = Path(__file__).parents[1]


class Worker:
    """`celery worker` of one variant, as it runs in production: prefork, INFO log, events."""

    def __init__(self, variant: str, folder: Path, concurrency: int) -> None:
        self.variant = variant
        self.node = f"{variant}@bench"
        self.log = folder / f"{variant}.log"
        command = [sys.executable, "-m", "celery", "-A", f"benchmarks.apps.{variant}", "worker", "--loglevel=INFO"]
        command += [f"--concurrency={concurrency}", f"--hostname={self.node}", "--without-gossip", "--without-mingle"]
        with self.log.open("wb") as output:
            self.process: subprocess.Popen[bytes] = spawn(
                command,
                folder=ROOT,
                death_signal=signal.SIGTERM,
                output=output,
                # By this name the server knows the connections of the variant.
                env=os.environ | {"PGAPPNAME": variant},
            )

    def await_ready(self, seconds: float = 60.0) -> None:
        """Wait until it consumes. ServiceError with the end of its log if it does not."""
        deadline = time.monotonic() + seconds
        while b" ready." not in self.log.read_bytes():
            if self.process.poll() is not None or time.monotonic() > deadline:
                tail = self.log.read_text(errors="replace")[-2000:]
                raise ServiceError(f"the {self.variant} worker did not start:\n{tail}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Warm shutdown; SIGKILL to all its processes after 15 s."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(15)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def children(self) -> list[int]:
        """The processes of its pool (and its relay, which is next to idle)."""
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in found.read_text().split()] if found.exists() else []


def used(pids: Iterable[int]) -> float:
    """Seconds of processor time that these processes have used up to now; 0 where the system does not say."""
    total = 0
    for pid in pids:
        for entry in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with suppress(OSError):
                total += int(entry.read_text().split()[0])
    return total / 1e9
