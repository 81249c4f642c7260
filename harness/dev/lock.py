"""One run at a time in one folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from harness.dev.process import ServiceError


def take(folder: Path) -> IO[str]:
    """Make the folder (0700) and lock it until the file that is returned is closed. ServiceError, also for a holder."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (folder / "lock").open("a+")
    except PermissionError as error:
        raise ServiceError(
            f"no access to {error.filename}: was it made by another user? Remove it or use another folder"
        ) from error
    except OSError as error:  # a read-only or full disk, a file where a folder should be
        raise ServiceError(
            f"{folder} can't be made ({error.strerror}: {error.filename}): use another folder"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise ServiceError(
            f"{folder} is in use by process {holder}: stop that first, or use another data folder"
        ) from None
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock
