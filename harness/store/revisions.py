"""Which migrations this release brings, and how a database's revision fits: read from the files' names.

Every worker asks at its start. It would pay for the import of Alembic, a tenth of all that it imports.
"""

from enum import StrEnum
from pathlib import Path

#: The oldest revision on which the code of this release works, so that it can be rolled out before the migrations are.
#: tests/migration runs real workers on every revision from this one on; older code is run on every newer schema.
OLDEST = "0001"
VERSION_TABLE = "harness_version"
_PACKAGE = Path(__file__).resolve().parent.parent


class Stand(StrEnum):
    """How a schema's revision and this release fit together."""

    MISSING = "missing"
    TOO_OLD = "too_old"
    #: Behind, and good enough for this release to work on: a roll-out is under way.
    BEHIND = "behind"
    UP_TO_DATE = "up_to_date"
    #: Not known here: a newer release has migrated it.
    AHEAD = "ahead"


def scripts() -> Path:
    """Where the migrations are: inside an installed package, beside it in a source tree."""
    installed = _PACKAGE / "migrations"
    return installed if installed.is_dir() else _PACKAGE.parent / "alembic"


def revisions() -> list[str]:
    """Every revision that this release knows, the oldest first. There are no branches."""
    return sorted(file.name[:4] for file in (scripts() / "versions").glob("[0-9][0-9][0-9][0-9]_*.py"))


def newest() -> str:
    """The revision that this release of the package brings."""
    return revisions()[-1]


def stand(revision: str | None) -> Stand:
    """What a schema at `revision` (None: without tables) is to this release."""
    known = revisions()
    if revision is None:
        return Stand.MISSING
    if revision not in known:
        return Stand.AHEAD
    if revision == known[-1]:
        return Stand.UP_TO_DATE
    return Stand.BEHIND if known.index(revision) >= known.index(OLDEST) else Stand.TOO_OLD
