"""A stored message's arguments, read as a worker reads them."""

from collections.abc import Mapping, Sequence
from typing import Any

from celery import Celery
from kombu.compression import decompress
from kombu.serialization import loads, prepare_accept_content

from harness.core.message import Message


def arguments_of(app: Celery, message: Message) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """`(args, kwargs)` of a message in either of Celery's protocols. Raises whatever is wrong with it."""
    body: Any = message.body
    if compression := message.headers.get("compression"):
        body = decompress(body, compression)
    accept = prepare_accept_content(app.conf.accept_content)
    payload = loads(body, message.content_type, message.content_encoding, accept=accept)
    if isinstance(payload, Mapping):
        return payload.get("args") or (), payload.get("kwargs") or {}
    args, kwargs, *_ = payload
    return args, kwargs
