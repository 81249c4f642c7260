"""Releases of this package as trees of files: the last one, from the history; this one; and this one with a change.

A release is installed nowhere: its tree comes first on the path of its processes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tests.worker.running import ROOT

APP = Path(__file__).with_name("app")
#: Version, newest revision and commit of the last release.
VERSION, REVISION, COMMIT = Path(__file__).with_name("RELEASED").read_text().split()


class NoRelease(Exception):
    """The last release's code can't be had."""


@dataclass(frozen=True)
class Release:
    """One release's tree. `name` is for people."""

    name: str
    tree: Path

    def environment(self, **more: str) -> dict[str, str]:
        """For its processes, which must not find the code of another release."""
        return os.environ | {"PYTHONPATH": f"{self.tree}{os.pathsep}{APP}", "PYTHONWARNINGS": "default", **more}

    def run(self, *arguments: str, **environment: str) -> str:
        """A Python process of this release to its end; its output. Raises CalledProcessError."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.tree,
            env=self.environment(**environment),
            check=False,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, f"{self.name}: {arguments}: {done.returncode}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def newest(self) -> str:
        """The revision that it brings; proves on the way that it is this tree's code that runs."""
        code = "import harness; from harness.store import migrate; print(harness.__file__, migrate.newest())"
        place, revision = self.run("-c", code).split()
        assert Path(place).is_relative_to(self.tree), place
        return revision

    def migrate(self, url: str, revision: str = "head", schema: str = "core") -> None:
        """Bring a database to one of its revisions."""
        code = "import sys; from harness.store.migrate import upgrade; upgrade(*sys.argv[1:])"
        self.run("-c", code, url, schema, revision)


def this(name: str = "this release") -> Release:
    """The code under test, where it stands."""
    return Release(name, ROOT)


def released(folder: Path, repository: Path = ROOT) -> Release:
    """The last release's code from the history of `repository`. Raises NoRelease."""
    git = ["git", "-C", str(repository)]
    there = subprocess.run([*git, "cat-file", "-e", f"{COMMIT}^{{commit}}"], capture_output=True, text=True)
    if there.returncode != 0:
        raise NoRelease(
            f"The code of release {VERSION}, commit {COMMIT}, is not in the history of {repository}: "
            f"{there.stderr.strip()}. The tests run it on this release's tables. In a shallow clone: "
            "git fetch --unshallow; in a copy without history: clone the repository instead."
        )
    tree, archive = folder / VERSION, folder / f"{VERSION}.tar"
    tree.mkdir()
    subprocess.run([*git, "archive", "--output", str(archive), COMMIT, "harness", "alembic"], check=True)
    with tarfile.open(archive) as tar:
        tar.extractall(tree, filter="data")
    return Release(f"release {VERSION}", tree)


def with_migration(folder: Path, statements: str, *, locks: str = "none on a table that was there.") -> Release:
    """A release after this one, whose only change is a migration of these SQL statements ({schema} in them)."""
    tree = folder / "next"
    for part in ("harness", "alembic"):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "alembic" / "versions" / "9001_next.py").write_text(
        f'"""The next release.\n\nLocks: {locks}\n"""\n'
        "from alembic import op\n"
        f'revision, down_revision, branch_labels, depends_on = "9001", {this().newest()!r}, None, None\n\n\n'
        "def upgrade():\n"
        f"    op.execute({statements!r}.format(schema=op.get_context().version_table_schema))\n\n\n"
        "def downgrade():\n    raise NotImplementedError\n"
    )
    return Release("the next release", tree)
