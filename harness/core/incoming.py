"""A message of somebody else's, before and after it was read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from harness.core.errors import HarnessError


class Unreadable(HarnessError):
    """A message that a source cannot read: a dead letter, `undecodable`."""


class Unfit(Unreadable):
    """A message that is readable and lacks something, or has it in a wrong shape: a dead letter, `invalid_payload`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A message that is to be taken in: what `harness.receive` takes, and what a source's `read` returns.

    `id` is the sender's: the same again is the same message, whatever else it says. `arguments` are the job's, by name;
    its signature is not asked here. `sent_at`: when it was sent, if the sender says so; a message that is older than
    the fences that are kept is not run (`too_old`). `headers` become headers of the job's message.
    """

    id: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    ordering_key: str | None = None
    tenant: str | None = None
    correlation_id: str | None = None
    priority: int | None = None
    sent_at: datetime | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """A message as a broker delivers it. `body`: its bytes, unpacked where they were compressed.

    `headers` are the application's, `properties` those of AMQP that are set (`message_id`, `correlation_id`,
    `timestamp`, …). `routing_key` is what it was published with.
    """

    body: bytes
    headers: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    content_type: str | None = None
    content_encoding: str | None = None
    routing_key: str = ""
    queue: str = ""

    def text(self) -> str:
        """The body as text, by its content encoding; UTF-8 where that is none. Raises Unreadable."""
        encoding = self.content_encoding
        try:
            return self.body.decode("utf-8" if not encoding or encoding == "binary" else encoding)
        except (LookupError, ValueError) as error:
            raise Unreadable(f"the body is no text in {encoding or 'utf-8'}: {type(error).__name__}") from error

    def json(self) -> Any:
        """The body as JSON. Raises Unreadable."""
        try:
            return json.loads(self.text())
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"the body is no JSON: {error}") from error

    def header(self, name: str) -> Any:
        """A header's value, whatever its case; None for none."""
        found = self.headers.get(name)
        if found is None:
            lower = name.lower()
            found = next((v for k, v in self.headers.items() if isinstance(k, str) and k.lower() == lower), None)
        return found
