"""In the parent: was this job revoked, by its id or by a stamp? Celery keeps both in the memory of each worker."""

from typing import Any

from celery.worker.state import revoked as revoked_ids
from celery.worker.state import revoked_stamps


def revoked_how(job_id: str, stamps: dict[str, Any]) -> str | None:
    """How a job that has not run yet was revoked, None where it was not."""
    if job_id in revoked_ids:
        return "revoked by its id before it ran"
    return "revoked by a stamp before it ran" if _stamp_revoked(stamps) else None


def _stamp_revoked(stamps: dict[str, Any]) -> bool:
    for name, value in stamps.items():
        wanted = revoked_stamps.get(name)
        if value is None or wanted is None:
            continue
        values = value if isinstance(value, (list, tuple)) else [value]
        if any(v == wanted or (isinstance(wanted, (list, tuple, set)) and v in wanted) for v in values):
            return True
    return False
