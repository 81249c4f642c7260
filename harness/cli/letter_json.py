"""A letter as JSON, complete: the body as base64, and as text where it is text."""

import base64
from typing import Any

from harness.core.view import jsonable
from harness.store.letter import Letter

_TIMES = ("reviewed_at", "alerted_at", "resolved_at", "created_at", "updated_at")
_LEFT_OUT = ("message", "digest", *_TIMES)
_LONG = ("failures", "lineage", "traceback", "payload")


def letter_json(letter: Letter, *, brief: bool = False) -> dict[str, Any]:
    """All fields; with `brief` without the message and the long ones."""
    left_out = (*_LEFT_OUT, *_LONG) if brief else _LEFT_OUT
    plain = {name: getattr(letter, name) for name in Letter.__dataclass_fields__ if name not in left_out}
    plain |= {name: value.isoformat() if (value := getattr(letter, name)) else None for name in _TIMES}
    plain["reason"] = str(letter.reason)
    plain["queue"] = letter.message.queue
    if brief:
        return plain
    return plain | {"digest": None if letter.digest is None else letter.digest.hex(), "message": _message(letter)}


def _message(letter: Letter) -> dict[str, Any]:
    message = letter.message
    return {
        "queue": message.queue,
        "content_type": message.content_type,
        "content_encoding": message.content_encoding,
        "headers": jsonable(message.headers),
        "properties": jsonable(message.properties),
        "body_base64": base64.b64encode(message.body).decode("ascii"),
        "body_text": body_text(message.body),
    }


def body_text(body: bytes) -> str | None:
    """The body as text, None where it is none."""
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None
