"""Where something stands in a message: a path such as `headers.X-GitHub-Delivery`, or a function."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from harness.core.errors import UsageError
from harness.core.incoming import Delivered, Unfit

Where = str | Callable[[Delivered], Any]
ROOTS = ("headers", "properties", "body", "text", "bytes", "routing_key", "attributes", "data")


class Parts:
    """A message's parts, each read when it is first asked for. `more`: what a format adds to them."""

    def __init__(self, message: Delivered, more: Mapping[str, Any] | None = None) -> None:
        self.message = message
        self._known: dict[str, Any] = dict(more or {})

    def find(self, where: Where) -> Any:
        """What stands there, None for nothing. Raises Unreadable."""
        if callable(where):
            return where(self.message)
        root, _, rest = where.partition(".")
        if root == "headers":
            return self.message.header(rest)
        if root == "properties":
            return self.message.properties.get(rest)
        if root not in self._known:
            self._known[root] = self._read(root)
        return reduce(_into, rest.split(".") if rest else (), self._known[root])

    def _read(self, root: str) -> Any:
        match root:
            case "body":
                return self.message.json()
            case "text":
                return self.message.text()
            case "bytes":
                return self.message.body
            case "routing_key":
                return self.message.routing_key
        return None


def check(where: object, name: str, roots: Sequence[str]) -> None:
    """Raise UsageError for what is neither a function nor a path into one of `roots`."""
    if callable(where):
        return
    root = where.partition(".")[0] if isinstance(where, str) else None
    bare = root in ("headers", "properties") and str(where) in (root, f"{root}.")
    if root not in roots or bare:
        known = ", ".join(f"{r}.…" if r in ("headers", "properties") else r for r in roots)
        raise UsageError(
            f"{name}={where!r}: write a path that begins with one of {known}; or a function of the message."
        )


def text_at(parts: Parts, where: Where | None, name: str) -> str | None:
    """The text, or the number in digits, that stands there; None for nothing. Raises Unfit for anything else."""
    found = None if where is None else parts.find(where)
    if found is None or found == "":
        return None
    if isinstance(found, bytes):
        found = found.decode("utf-8", "backslashreplace")
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise Unfit(f"its {name} is neither text nor a whole number: {type(found).__name__}")
    text = str(found)
    if len(text.encode("utf-8", "surrogatepass")) > 1000 or not text.isprintable():
        raise Unfit(f"its {name} is no printable text of at most 1000 bytes")
    return text


def _into(value: Any, step: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(step)
    if isinstance(value, list) and step.isascii() and step.isdigit():
        return value[int(step)] if int(step) < len(value) else None
    return None
