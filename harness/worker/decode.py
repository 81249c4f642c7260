"""A stored message's arguments, read as a worker reads them."""

from collections.abc import Mapping, Sequence
from typing import Any

from celery import Celery
from kombu.serialization import loads, prepare_accept_content

from harness.core.message import Message
from harness.worker.unpack import unpack


def arguments_of(app: Celery, message: Message) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """`(args, kwargs)` of a message in either of Celery's protocols. Raises whatever is wrong with it."""
    payload = payload_of(message, prepare_accept_content(app.conf.accept_content))
    if isinstance(payload, Mapping):
        return payload.get("args") or (), payload.get("kwargs") or {}
    args, kwargs, *_ = payload
    return args, kwargs


def payload_of(message: Message, accept: Any) -> Any:
    """The decoded body, where its content type is one of `accept` (content types, not the names of serialisers).

    Raises whatever is wrong with it.
    """
    body: Any = message.body
    if compression := message.headers.get("compression"):
        body = unpack(body, compression)
    body = in_its_encoding(body, message.content_encoding)
    return loads(body, message.content_type, message.content_encoding, accept=accept)


def in_its_encoding(body: bytes, encoding: Any) -> str | bytes:
    """The text of a body whose content encoding names one, else the body: as py-amqp reads it, for every broker."""
    if not isinstance(encoding, str):
        return body
    try:
        return body.decode(encoding)
    except (LookupError, ValueError):
        return body
