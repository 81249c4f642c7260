"""A job's result as its fence keeps it, for a duplicate that has to answer with it or to send on what comes after."""

from typing import Any

from kombu.utils import json


class NotKept:
    """In place of a result that nobody has asked for when the job ran: nothing that needs it can have been sent."""


class HandedOn(NotKept):
    """In place of one that has no form as JSON: the copy that ran has handed it on, and nobody else can."""


def write(result: Any) -> bytes:
    """The result as JSON, as Celery writes it; no bytes for one that has no such form: that changes no outcome."""
    try:
        return str(json.dumps(result)).encode("utf-8")
    except Exception:
        return b""


def is_known(result: Any) -> bool:
    """Is it one, and not in its place one of these?"""
    return result is not NotKept and result is not HandedOn


def read(kept: object) -> Any:
    """The result that `write` was given, NotKept or HandedOn."""
    if not isinstance(kept, (bytes, bytearray, memoryview)):
        return NotKept
    try:
        return json.loads(bytes(kept))
    except Exception:
        return HandedOn
