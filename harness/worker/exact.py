"""In the parent: every message keeps the bytes that came in, and reads as before.

py-amqp turns a body into text as its content encoding says, from which not every encoding leads back to the same
bytes, and kombu decompresses, however large that becomes: both do so while they read the message.
"""

import base64
import sys
from typing import Any

from harness.worker.decode import in_its_encoding
from harness.worker.unpack import unpack


def keep_bytes(channel: Any) -> None:
    """Give the messages of `channel` the attribute `raw_body`."""
    if hasattr(channel, "auto_decode"):
        channel.auto_decode = False
    channel.Message = _keeping(channel.Message)


def _keeping(usual: Any) -> Any:
    class Message(usual):  # type: ignore[misc]
        body: Any

        def __init__(self, raw: Any = None, *args: Any, **kwargs: Any) -> None:
            raw = kwargs.pop("payload", raw)
            self.raw_body = _sent(raw)
            compression = _hide_compression(raw)
            super().__init__(raw, *args, **kwargs)
            if compression:
                self.headers["compression"] = compression
                self._unpack(compression)
            if isinstance(self.body, bytes) and not self.errors:
                self.body = in_its_encoding(self.body, self.content_encoding)

        def _unpack(self, compression: Any) -> None:
            if self.errors:
                return
            try:
                self.body = unpack(self.body, compression)
            except Exception:
                # Where kombu keeps what was wrong with a message that it read.
                self.errors.append(sys.exc_info())

        def serializable(self) -> Any:
            """What a virtual transport puts back into the queue for a message that is handed back."""
            return self._raw | {"properties": self.properties}

    return Message


def _hide_compression(raw: Any) -> Any:
    """Take the name of the compression out of the headers, in place, so that kombu does not unpack; returns it."""
    headers = raw.get("headers") if isinstance(raw, dict) else raw.properties.get("application_headers")
    if not isinstance(headers, dict) or not (compression := headers.get("compression")):
        return None
    headers["compression"] = None
    return compression


def _sent(raw: Any) -> bytes:
    """The body as it was sent: an AMQP message's own, or the base64 text of a virtual transport's envelope."""
    if isinstance(raw, dict):
        body = raw.get("body") or ""
        if (raw.get("properties") or {}).get("body_encoding") == "base64":
            return base64.b64decode(body)
    else:
        body = raw.body
    return body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes(body)
