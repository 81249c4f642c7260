"""The file that gives other shells the servers of a run: `. .harness/env`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from harness.dev.configured import BROKER, BROKERS_APART, DATABASE, FOLDER, RESULTS

NAMES = (DATABASE, BROKER, *BROKERS_APART.values(), RESULTS)


class EnvFile:
    """``data``: folder of the run."""

    def __init__(self, data: Path) -> None:
        self.data, self.path = data, data / "env"

    def write(self, env: Mapping[str, str]) -> None:
        """Write those of the variables of ``env`` that name servers. Readable by its owner alone."""
        self.path.unlink(missing_ok=True)
        self.path.touch(mode=0o600)  # the passwords are in it
        lines = [f"export {name}={shlex.quote(env[name])}\n" for name in NAMES if name in env]
        lines.append(f"export {FOLDER}={shlex.quote(str(self.data))}\n")
        self.path.write_text("".join(lines))
        (self.data / ".gitignore").write_text("*\n")

    def remove(self) -> None:
        """The servers are gone."""
        self.path.unlink(missing_ok=True)

    def forget(self, env: dict[str, str]) -> None:
        """A shell that has read the file names the servers of an earlier run, not ones of the user's own."""
        if os.environ.get(FOLDER) == str(self.data):
            for name in (*NAMES, FOLDER):
                os.environ.pop(name, None)
                env.pop(name, None)
