"""The same content said otherwise: by position or by name, with a default written out or left out.

A fence keeps the digest of what came first, as it came. What comes later is the same content when one of the ways to
say it has that digest. So no stored digest depends on the handler's signature, which the next release may change.
"""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import combinations
from typing import Any, NamedTuple
from uuid import UUID

from harness.core.message import Message, digest, job_key

_PARAMETER = inspect.Parameter
#: Values of which every process makes the same text; the `repr` of others may hold an address.
_LASTING = (str, bytes, int, float, type(None), date, time, timedelta, Decimal, UUID)
#: Ways to say one content that are tried; a handler with many defaults has more.
_MOST = 512
_HEX = 16


def conflict_id(job_id: str, other: bytes) -> str:
    """The id under which the content with the digest `other` is kept, where `job_id` stands for another content."""
    return job_key(f"{job_id}#{other.hex()[:_HEX]}", b"")


def same_content(known: bytes, sent: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Is `known` the digest of these arguments in another form? Also true where their digest means nothing.

    `sent`: the parameters that a message carries.
    """
    if not _is_lasting([args, kwargs]):
        return True
    try:
        return any(digest(*form) == known for form in _forms(sent, tuple(args), dict(kwargs)))
    except (TypeError, ValueError):  # they do not fit the handler: there is one way to say them
        return digest(args, kwargs) == known


def named_digest(sent: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """The digest of these arguments by name and without defaults: the same however they are said."""
    try:
        said = _Said.of(sent, tuple(args), dict(kwargs))
    except (TypeError, ValueError):
        said = None
    if said is None:
        return digest(args, kwargs)
    return digest([], {name: value for name, value in said.full.items() if name not in said.optional} | said.more)


def digest_of_json(message: Message) -> bytes | None:
    """The digest of a plain JSON message's arguments, without Celery; None for any other message."""
    body = message.body
    if message.content_type != "application/json" or message.headers.get("compression") or b"__type__" in body:
        return None
    if b"\\u005" in body:  # kombu's mark of a type of its own, in disguise
        return None
    try:
        payload = json.loads(body.decode("utf-8"))
        if isinstance(payload, dict):
            return digest(payload.get("args") or (), payload.get("kwargs") or {}) if "task" in payload else None
        args, kwargs, _ = payload
        return digest(args, kwargs) if isinstance(args, list) and isinstance(kwargs, dict) else None
    except (ValueError, TypeError, RecursionError):
        return None


@dataclass(frozen=True)
class Forms:
    """Compares the content of messages as their handlers would get it. Where it can't, the digest alone counts.

    `sent(task)`: the parameters that a message of this task carries, None where the task is not known. `read(message)`:
    its `(args, kwargs)`; may raise.
    """

    sent: Callable[[str], inspect.Signature | None] = lambda task: None
    read: Callable[[Message], tuple[Sequence[Any], Mapping[str, Any]]] = lambda message: ((), {})

    def say(self, task: str, message: Message, known: bytes) -> bool:
        """Does the message say the content with the digest `known`, in another form?"""
        said = self._said(task, message)
        return said is not None and same_content(known, *said)

    def name(self, task: str, message: Message) -> bytes | None:
        """`named_digest` of the message's content, None where it can't be told."""
        said = self._said(task, message)
        return None if said is None else named_digest(*said)

    def _said(self, task: str, message: Message) -> tuple[inspect.Signature, Sequence[Any], Mapping[str, Any]] | None:
        sent = self.sent(task)
        if sent is None:
            return None
        try:
            args, kwargs = self.read(message)
        except Exception:
            return None
        return (sent, args, kwargs) if isinstance(kwargs, Mapping) else None


class _Said(NamedTuple):
    """Arguments by name, defaults filled in. `optional`: those that are as good as left out; `more`: of `**kwargs`."""

    parameters: list[inspect.Parameter]
    full: dict[str, Any]
    optional: list[str]
    more: dict[str, Any]

    @classmethod
    def of(cls, sent: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "_Said | None":
        """None where something stands behind a star, which can't be named. Raises TypeError where they do not fit."""
        given = sent.bind(*args, **kwargs).arguments
        parameters = sent.parameters.values()
        if any(p.kind is _PARAMETER.VAR_POSITIONAL and given.get(p.name) for p in parameters):
            return None
        more: dict[str, Any] = next((given.get(p.name, {}) for p in parameters if p.kind is _PARAMETER.VAR_KEYWORD), {})
        own = [p for p in parameters if p.kind not in (_PARAMETER.VAR_POSITIONAL, _PARAMETER.VAR_KEYWORD)]
        full = {p.name: given.get(p.name, p.default) for p in own}
        optional = [p.name for p in own if p.default is not _PARAMETER.empty and _equal(full[p.name], p.default)]
        return cls(own, full, optional, more)


def _forms(
    sent: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    said = _Said.of(sent, args, kwargs)
    if said is None:
        return
    made = 0
    for left_out in _subsets(said.optional):
        named = {name: value for name, value in said.full.items() if name not in left_out}
        positional: list[Any] = []
        for parameter in (*said.parameters, None):
            yield [*positional], named | said.more
            made += 1
            if made == _MOST:
                return
            if parameter is None or parameter.kind is _PARAMETER.KEYWORD_ONLY or parameter.name not in named:
                break
            positional.append(named.pop(parameter.name))


def _subsets(names: Sequence[str]) -> Iterator[frozenset[str]]:
    """The likely ones first: nothing, then everything."""
    for size in dict.fromkeys((0, len(names), *range(len(names)))):
        for chosen in combinations(names, size):
            yield frozenset(chosen)


def _equal(one: object, other: object) -> bool:
    return digest([one], {}) == digest([other], {})


def _is_lasting(value: object) -> bool:
    todo: list[object] = [value]
    for _ in range(1_000_000):
        if not todo:
            return True
        item = todo.pop()
        inside: Iterable[object] = ()
        if isinstance(item, Mapping):
            inside = (*item.keys(), *item.values())
        elif isinstance(item, list | tuple | set | frozenset):
            inside = item
        elif not isinstance(item, _LASTING):
            return False
        todo.extend(inside)
    return False
