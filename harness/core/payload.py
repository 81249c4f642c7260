"""Arguments that do not fit: which, and why, in words for the operator who finds the dead letter."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import pydantic

from harness.core.errors import InvalidPayload
from harness.core.text import bounded, clean, type_name

_MOST_NAMED = 20
_NAME_BYTES = 200


def wrong_shape(args: object, kwargs: object, injected: Iterable[str]) -> InvalidPayload | None:
    """What is wrong before any type hint counts: foreign producers send all sorts of things as arguments."""
    plain = type(args) in (list, tuple) and type(kwargs) is dict
    if not plain and (problem := _no_arguments(args, kwargs)) is not None:
        return problem
    for key in cast(Mapping[Any, Any], kwargs):
        if type(key) is str and key.isidentifier():
            continue
        if not isinstance(key, str) or clean(key) != key:
            return _one("kwargs", "shape", f"{key!a} cannot be the name of an argument")
    for name in injected:
        if name in cast(Mapping[Any, Any], kwargs):
            return _one(name, "injected", "is injected by the harness; a message must not carry it")
    return None


def _no_arguments(args: object, kwargs: object) -> InvalidPayload | None:
    if not isinstance(args, Sequence) or isinstance(args, str | bytes | bytearray):
        return _one("args", "shape", f"the positional arguments must be a list, not {type_name(args)}")
    if not isinstance(kwargs, Mapping):
        return _one("kwargs", "shape", f"the keyword arguments must be an object, not {type_name(kwargs)}")
    return None


def invalid(error: pydantic.ValidationError, sent: inspect.Signature) -> InvalidPayload:
    """pydantic's findings in terms of the parameters. Without the values: the letter has the body."""
    positional = [
        p.name
        for p in sent.parameters.values()
        if p.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ]
    return _all(
        [
            {
                "argument": _argument(found["loc"], positional),
                "type": found["type"],
                "message": bounded(found["msg"], 1000),
            }
            for found in error.errors(include_url=False, include_context=False, include_input=False)
        ]
    )


def _argument(loc: tuple[int | str, ...], positional: list[str]) -> str:
    """`order.lines.0.price`: pydantic knows a positional argument by its number only."""
    first, *rest = loc or ("arguments",)
    if isinstance(first, int):
        first = positional[first] if first < len(positional) else f"positional argument {first + 1}"
    return bounded(".".join(str(part) for part in (first, *rest)), _NAME_BYTES)


def _one(argument: str, kind: str, message: str) -> InvalidPayload:
    return _all([{"argument": argument, "type": kind, "message": bounded(message, 1000)}])


def _all(errors: list[dict[str, Any]]) -> InvalidPayload:
    lines = [f"{found['argument']}: {found['message']}" for found in errors[:_MOST_NAMED]]
    if len(errors) > _MOST_NAMED:
        lines.append(f"and {len(errors) - _MOST_NAMED} more")
    return InvalidPayload("the arguments do not fit the handler: " + "; ".join(lines), errors[:_MOST_NAMED])
