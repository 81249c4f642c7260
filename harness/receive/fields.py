"""How a source reads its messages, said by where each thing stands."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from harness.core.errors import UsageError
from harness.core.incoming import Delivered, Incoming, Unfit
from harness.core.message import job_key
from harness.receive.paths import Parts, Where, check, text_at

ROOTS = ("headers", "properties", "body", "text", "bytes", "routing_key")


@dataclass(frozen=True, kw_only=True)
class Fields:
    """Reads a message by paths: `Fields(id="headers.X-Id", arguments={"order": "body"}, tenant="body.account.id")`.

    A path is `headers.<name>` (whatever its case), `properties.<name>` of AMQP, `body` (JSON) or `body.<key>.<key or
    index>…`, `text` or `bytes` of the whole body, or `routing_key`; or it is a function of the `Delivered` message.

    - `id`: by default the property `message_id`. Where none is found: `without_id="hash"` takes `sha256:` and the
      digest of the body, so that two messages with the same bytes are one; `"refuse"` makes a dead letter of it.
    - `arguments`: a mapping from the job's parameters to paths, where a path that finds nothing leaves the argument
      out; or one path to an object with all of them, by default the body.
    - `ordering_key`, `tenant`: none by default. `correlation_id`: the property of that name. `priority`: none.
    """

    id: Where = "properties.message_id"
    arguments: Mapping[str, Where] | Where = "body"
    ordering_key: Where | None = None
    tenant: Where | None = None
    correlation_id: Where | None = "properties.correlation_id"
    priority: Where | None = None
    without_id: Literal["hash", "refuse"] = "hash"

    def __post_init__(self) -> None:
        check_paths(self, ROOTS)
        if self.without_id not in ("hash", "refuse"):
            raise UsageError(f'without_id={self.without_id!r}: it is "hash" or "refuse".')

    def __call__(self, message: Delivered) -> Incoming:
        """Read one message. Raises Unreadable, Unfit."""
        parts = Parts(message)
        found = text_of_id(parts, self.id)
        if found is None and self.without_id == "refuse":
            raise Unfit(f"it has no id: nothing stands at {self.id}")
        return incoming(self, parts, job_key(found, message.body))


def check_paths(fields: Any, roots: tuple[str, ...]) -> None:
    """UsageError for what is no path."""
    for name in ("id", "ordering_key", "tenant", "correlation_id", "priority"):
        if (where := getattr(fields, name, None)) is not None:
            check(where, name, roots)
    arguments = fields.arguments
    if isinstance(arguments, Mapping):
        for name, where in arguments.items():
            if not (isinstance(name, str) and name.isidentifier()):
                raise UsageError(f"arguments: {name!r} cannot be the name of a parameter.")
            check(where, f"arguments[{name!r}]", roots)
    else:
        check(arguments, "arguments", roots)


def text_of_id(parts: Parts, where: Where) -> str | None:
    """An id of any length: a long one is kept as its digest."""
    found = parts.find(where)
    if found is None or found == "" or found == b"":
        return None
    if isinstance(found, bool) or not isinstance(found, str | int | bytes):
        raise Unfit(f"its id is neither text nor a whole number: {type(found).__name__}")
    return job_key(str(found) if isinstance(found, int) else found, parts.message.body)


def incoming(fields: Any, parts: Parts, job_id: str) -> Incoming:
    """The message under its id, with what `fields` say of it."""
    priority = None if fields.priority is None else parts.find(fields.priority)
    return Incoming(
        id=job_id,
        arguments=_arguments(parts, fields.arguments),
        ordering_key=text_at(parts, fields.ordering_key, "ordering key"),
        tenant=text_at(parts, fields.tenant, "tenant"),
        correlation_id=text_at(parts, fields.correlation_id, "correlation id"),
        priority=priority if type(priority) is int and 0 <= priority <= 255 else None,
        sent_at=_time(parts.message.properties.get("timestamp")),
    )


def _arguments(parts: Parts, wanted: Mapping[str, Where] | Where) -> dict[str, Any]:
    if isinstance(wanted, Mapping):
        found = {name: parts.find(where) for name, where in wanted.items()}
        return {name: value for name, value in found.items() if value is not None}
    whole = parts.find(wanted)
    if not isinstance(whole, Mapping):
        raise Unfit(f"its arguments are no object but {type(whole).__name__}")
    return {str(name): value for name, value in whole.items()}


def _time(value: Any) -> datetime | None:
    """AMQP's timestamp: a time, or seconds since 1970."""
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        if isinstance(value, datetime):
            return value if value.tzinfo else value.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None
