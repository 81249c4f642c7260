"""In the parent, on Redis-protocol brokers: what lies in a queue's list and is no message of kombu's.

Anybody can push anything onto a list. kombu has taken it off by the time it finds that it can't read it, and ends the
worker over some of it. Here it becomes a message whose body is what was found, which is recorded like any other.
"""

import base64
import json
from typing import Any
from uuid import uuid4

from kombu.utils.json import loads


def take_anything(channel: Any) -> None:
    """Let `channel` deliver what it cannot read as a message without headers."""
    if not hasattr(channel, "_brpop_read"):
        return
    client, sep = channel.client, channel.sep
    usual = client.parse_response

    def parse_response(connection: Any, command: Any, **options: Any) -> Any:
        reply = usual(connection, command, **options)
        if command != "BRPOP" or not reply:
            return reply
        key, item = reply
        if is_readable(item):
            return reply
        name = key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)
        return key, wrapped(item, name.rsplit(sep, 1)[0])

    client.parse_response = parse_response


def _has_own_types(item: bytes | str) -> bool:
    """May it hold a value of one of kombu's own types? Their mark may be written with escapes, too."""
    data = item if isinstance(item, bytes) else item.encode("utf-8", "surrogatepass")
    return b"__type__" in data or b"\\u" in data


def is_readable(item: bytes | str) -> bool:
    try:
        # Given bytes, the standard library reads other encodings, too, and a byte order mark: kombu does not.
        text = item.decode("utf-8") if isinstance(item, bytes) else item
        # Where nothing in it is of a type of kombu's own, its reader takes exactly what the standard library's takes.
        envelope = loads(text) if _has_own_types(item) else json.loads(text)
        properties = envelope["properties"]
        where = properties["delivery_info"]
        body, tag, exchange, key = (
            envelope["body"],
            properties["delivery_tag"],
            where["exchange"],
            where["routing_key"],
        )
        kind, encoding = envelope.get("content-type"), envelope.get("content-encoding")
        if (packed := properties.get("body_encoding")) == "base64":
            base64.b64decode(body, validate=True)
        elif packed not in (None, ""):
            return False
        return (
            type(body) is type(tag) is type(exchange) is type(key) is str
            and (kind is None or type(kind) is str)
            and (encoding is None or type(encoding) is str)
            and isinstance(envelope.get("headers"), dict | None)
        )
    except Exception:  # what kombu's own types raise, too: a decimal that is none, a module that is not there
        return False


def wrapped(item: bytes | str, queue: str) -> bytes:
    data = item if isinstance(item, bytes) else item.encode("utf-8", "surrogatepass")
    properties = {
        "body_encoding": "base64",
        "delivery_tag": str(uuid4()),
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": queue},
        "priority": 0,
    }
    envelope = {
        "body": base64.b64encode(data).decode("ascii"),
        "content-type": "application/data",
        "content-encoding": "binary",
        "headers": {},
        "properties": properties,
    }
    return json.dumps(envelope).encode("ascii")
