"""What went wrong in one try: plain, bounded text that every store takes."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from harness.core.text import bounded

NAME_BYTES = 255
MESSAGE_BYTES = 4 * 1024
TRACEBACK_BYTES = 16 * 1024


class Kind(StrEnum):
    """What sort of failure it is. `decide` needs nothing else of it, save a delay."""

    transient = "transient"
    permanent = "permanent"
    invalid = "invalid"
    retry_later = "retry_later"
    not_ready = "not_ready"
    crashed = "crashed"
    timed_out = "timed_out"
    unknown_task = "unknown_task"
    undecodable = "undecodable"
    expired = "expired"
    revoked = "revoked"
    too_old = "too_old"
    conflict = "conflict"
    broker = "broker"
    outcome_unknown = "outcome_unknown"


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed try.

    The texts are cleaned and cut on the way in (UTF-8 bytes: type 255, message 4 KiB, traceback 16 KiB), so
    that PostgreSQL's `text` and `jsonb` take them. `fingerprint` is the same for failures of one type from
    one place in the code. `delay`, in seconds, is set where the handler asked for one.
    """

    kind: Kind
    error_type: str
    message: str
    traceback: str = ""
    fingerprint: str = ""
    delay: float | None = None

    def __post_init__(self) -> None:
        for name, limit in (
            ("error_type", NAME_BYTES),
            ("message", MESSAGE_BYTES),
            ("fingerprint", NAME_BYTES),
        ):
            object.__setattr__(self, name, bounded(getattr(self, name), limit))
        object.__setattr__(self, "traceback", bounded(self.traceback, TRACEBACK_BYTES, keep_end=True))

    def to_dict(self) -> dict[str, Any]:
        """The failure as a JSON object, for the list of failures of an inbox row or a dead letter."""
        return {
            "kind": self.kind.value,
            "error_type": self.error_type,
            "message": self.message,
            "traceback": self.traceback,
            "fingerprint": self.fingerprint,
        }
