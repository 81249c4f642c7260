"""What a message carries, for people: its arguments where they can be read without running anything, else its body."""

import json
import zlib
from collections.abc import Mapping
from typing import Any

from harness.core.message import Message
from harness.core.view import jsonable

#: Bytes of an (unpacked) body. A larger one is not read for a view, which would be cut anyway.
LARGEST = 1_000_000


def view_of(message: Message) -> Any:
    """`{"args": …, "kwargs": …}` of a Celery message in JSON, else `{"body": …}`, of JSON's own types. Never raises.

    Other serialisers are not run here: one of them may be pickle.
    """
    try:
        value: Any = json.loads(_text(message))
    except Exception:  # bytes, another format, too large, nested too deep: the text, or the bytes, are what there is
        return jsonable({"body": _plain(message.body)})
    return jsonable(_arguments(value) or {"body": value})


def _arguments(value: Any) -> dict[str, Any] | None:
    """Of Celery's protocols 2 and 1."""
    if isinstance(value, list) and len(value) == 3 and isinstance(value[0], list) and isinstance(value[1], dict):
        return {"args": value[0], "kwargs": value[1]}
    if isinstance(value, Mapping) and "task" in value and ("args" in value or "kwargs" in value):
        return {"args": value.get("args") or [], "kwargs": value.get("kwargs") or {}}
    return None


def _text(message: Message) -> str:
    body = message.body
    if message.headers.get("compression") in ("application/x-gzip", "gzip", "zlib"):
        body = zlib.decompressobj().decompress(body, LARGEST + 1)
    if len(body) > LARGEST:
        raise ValueError("too large")
    encoding = message.content_encoding
    try:
        return body.decode(encoding if isinstance(encoding, str) and encoding != "binary" else "utf-8")
    except LookupError:
        return body.decode("utf-8")


def _plain(body: bytes) -> str | bytes:
    try:
        return body[:LARGEST].decode("utf-8")
    except UnicodeDecodeError:
        return body
