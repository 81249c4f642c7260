"""A job's result as its fence keeps it, for a duplicate that has to answer with it or to send on what comes after."""

from typing import Any

from kombu.utils import json


class NotKept:
    """In place of a result that nobody knows any more."""


def write(result: Any) -> bytes | None:
    """The result as JSON, as Celery writes it; None for one that has no such form: that changes no outcome."""
    try:
        return str(json.dumps(result)).encode("utf-8")
    except Exception:
        return None


def read(kept: object) -> Any:
    """The result that `write` was given, or NotKept."""
    if not isinstance(kept, (bytes, bytearray, memoryview)):
        return NotKept
    try:
        return json.loads(bytes(kept))
    except Exception:
        return NotKept
