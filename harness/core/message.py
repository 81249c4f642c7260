"""A message exactly as it travels, the key of its job, and safe views of what is in it."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from harness.core.text import LONGEST_DECIMAL, int_text, safe_repr, safe_str
from harness.core.view import jsonable

__all__ = ["Message", "digest", "job_key", "jsonable"]

_LONGEST_ID = 255


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent again, to the byte: JSON does not survive a round trip through `jsonb`.

    `queue` is where it came from, and the routing key under which it goes out again.
    """

    body: bytes
    content_type: str | None
    content_encoding: str | None
    headers: dict[str, Any]
    properties: dict[str, Any]
    queue: str


def job_key(raw_id: object, body: bytes) -> str:
    """The id under which a job is kept, whatever a producer sent as one. Never raises.

    A printable text of at most 255 characters is its own key. Any other id becomes `sha256:` and the digest
    of its text; a missing one (None or "") the digest of the body.
    """
    if raw_id is None or raw_id == "":
        return _sha256(body)
    if isinstance(raw_id, str):
        text = str.encode(raw_id, "utf-8", "surrogatepass").decode("utf-8", "surrogatepass")
        if len(text) <= _LONGEST_ID and text.isprintable():
            return text
        return _sha256(text.encode("utf-8", "surrogatepass"))
    return _sha256(raw_id if isinstance(raw_id, bytes) else safe_str(raw_id).encode())


def _sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def digest(args: object, kwargs: object) -> bytes:
    """The sha256 (32 bytes) of the arguments as canonical JSON: keys sorted, tuples as lists. Never raises.

    Two copies of a job have the same digest; the same id with another digest is not a duplicate. What JSON
    has no form for goes in as its `repr`.
    """
    if _is_plain(args) and _is_plain(kwargs):
        try:
            return hashlib.sha256(_encode([args, kwargs]).encode()).digest()
        except (ValueError, RecursionError):  # NaN, more digits than Python writes, a cycle, too deep for it
            pass
    found = hashlib.sha256()
    try:
        for token in _canonical([args, kwargs]):
            found.update(token.encode())
    except Exception:  # an object with hostile methods; what was read before it still tells copies apart
        found.update(b"<unreadable>")
    return found.digest()


#: The same text as `_canonical` makes, at the speed of C, for what a JSON message can hold.
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def _is_plain(value: object, levels: int = 20) -> bool:
    """Whether a container is made of nothing but JSON's own types, with text as keys, and not very deep."""
    inside: Iterable[object]
    if type(value) is dict:
        for key in value:
            if type(key) is not str:
                return False
        inside = value.values()
    elif type(value) is list or type(value) is tuple:
        inside = cast(Sequence[object], value)
    else:
        return type(value) is int and value.bit_length() < LONGEST_DECIMAL
    for inner in inside:
        if type(inner) in _SCALARS or (type(inner) is int and -_USUAL < inner < _USUAL):
            continue
        if levels == 0 or not _is_plain(inner, levels - 1):
            return False
    return True


_SCALARS = frozenset((str, float, bool, type(None)))
_USUAL = 2**63


class _Token(str):
    """A piece of finished JSON, among values that are still to be written."""

    __slots__ = ()


class _Leave:
    """Marks where a container ends, so that one inside itself is noticed."""

    def __init__(self, container: object) -> None:
        self.key = id(container)


def _canonical(value: object) -> Iterator[str]:
    """Canonical JSON in pieces. With a stack of its own: a message may nest deeper than Python recurses."""
    todo: list[object] = [value]
    inside: set[int] = set()
    while todo:
        item = todo.pop()
        if isinstance(item, _Token):
            yield item
        elif isinstance(item, _Leave):
            inside.discard(item.key)
        elif isinstance(item, dict | list | tuple | set | frozenset):
            if id(item) in inside:
                yield '"<cycle>"'
                continue
            inside.add(id(item))
            todo.append(_Leave(item))
            todo.extend(reversed(list(_pieces(item))))
        else:
            yield _scalar(item)


def _pieces(container: Any) -> Iterator[object]:
    """A container's brackets, commas and keys as tokens, with its values in between."""
    if isinstance(container, dict):
        yield _Token("{")
        pairs = sorted(((_key(key), inner) for key, inner in container.items()), key=_first)
        for position, (key, inner) in enumerate(pairs):
            yield _Token(f"{',' if position else ''}{json.dumps(key)}:")
            yield inner
        yield _Token("}")
        return
    # A set has no order that two processes share.
    items = sorted(container, key=_scalar) if isinstance(container, set | frozenset) else container
    yield _Token("[")
    for position, inner in enumerate(items):
        if position:
            yield _Token(",")
        yield inner
    yield _Token("]")


def _first(pair: tuple[str, object]) -> str:
    return pair[0]


def _key(key: object) -> str:
    return key if isinstance(key, str) else _scalar(key)


def _scalar(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return json.dumps(str.__str__(value))
    if isinstance(value, int):
        return int_text(value)
    if isinstance(value, float):
        return float.__repr__(value)
    return json.dumps(safe_repr(value))
