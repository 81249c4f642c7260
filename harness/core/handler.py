"""Reads a handler: its parameters with their types; what could not be validated or called later is refused at once."""

import inspect
import typing
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pydantic
from pydantic_core import ArgsKwargs

from harness.core.errors import SignatureError

Handler = Callable[..., Any]
_PARAMETER = inspect.Parameter


def name_of(handler: object) -> str:
    """As errors say whose signature it is."""
    return str(getattr(handler, "__qualname__", None) or handler)


def signature_of(handler: Handler) -> inspect.Signature:
    """The parameters, as Python tells them."""
    try:
        return inspect.signature(handler)
    except (TypeError, ValueError) as error:
        raise SignatureError(
            f"{name_of(handler)} shows no signature, the schema of its messages. Wrap it in a function."
        ) from error


def refuse_unawaited(handler: Handler) -> None:
    """Calling such a function runs nothing: the job would be done without any effect."""
    plain = inspect.unwrap(handler)
    for is_one, what in (
        (inspect.iscoroutinefunction, "a coroutine function"),
        (inspect.isasyncgenfunction, "an asynchronous generator"),
        (inspect.isgeneratorfunction, "a generator"),
    ):
        if is_one(plain):
            raise SignatureError(f"{name_of(handler)} is {what}: a call would run nothing. Use a function.")


def hint_of(handler: Handler, parameter: inspect.Parameter) -> Any:
    """The type of a parameter, with names in strings looked up."""
    if parameter.annotation is _PARAMETER.empty:
        return Any
    target: Any = inspect.unwrap(getattr(handler, "func", handler))
    names = getattr(target, "__globals__", None) or getattr(type(target).__call__, "__globals__", {})
    holder: Any = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return typing.get_type_hints(holder, globalns=names, include_extras=True)[parameter.name]
    except Exception as error:
        raise SignatureError(
            f"{name_of(handler)}: the annotation of {parameter.name!r}, {parameter.annotation!r}, cannot be "
            f"resolved ({error}). Import or define the name at module level, not under TYPE_CHECKING or in "
            "a function."
        ) from error


def refuse_unannotated(
    handler: Callable[..., Any], parameters: list[inspect.Parameter], injected: Mapping[type, str]
) -> None:
    """A bare `session` would be a part of every message, and each message would be refused for lack of it."""
    for parameter in parameters:
        if parameter.annotation is Any and parameter.name in injected.values():
            kind = next(kind.__name__ for kind, key in injected.items() if key == parameter.name)
            raise SignatureError(
                f"{name_of(handler)}: the parameter {parameter.name!r} has no type, so it would be expected in the "
                f"message. To have it injected, write {parameter.name}: {kind}."
            )


def key_of(parameter: inspect.Parameter, injected: Mapping[type, str]) -> str | None:
    """Under which key the value for this parameter is found; None for one that a message carries."""
    hint = parameter.annotation
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    return injected.get(hint) if isinstance(hint, type) else None


def adapter_of(handler: Handler, sent: inspect.Signature) -> pydantic.TypeAdapter[Any]:
    """pydantic's validator for the whole list of arguments; one for each alone first, to name a culprit."""

    def collect(*args: Any, **kwargs: Any) -> ArgsKwargs:
        return ArgsKwargs(args, kwargs)

    for parameter in sent.parameters.values():
        if parameter.kind is not _PARAMETER.VAR_KEYWORD:  # its annotation may be an Unpack, which is no type
            _schema(handler, repr(parameter.name), parameter.annotation)
    collect.__signature__ = sent  # type: ignore[attr-defined]
    collect.__annotations__ = {p.name: p.annotation for p in sent.parameters.values()}
    return _schema(handler, "its parameters", collect)


def _schema(handler: Handler, what: str, annotation: Any) -> pydantic.TypeAdapter[Any]:
    try:
        adapter = pydantic.TypeAdapter(annotation)
        if not adapter.pydantic_complete:
            adapter.rebuild(raise_errors=True)
        return adapter
    except Exception as error:
        raise SignatureError(
            f"{name_of(handler)}: pydantic cannot make a schema of {what} ({str(error).splitlines()[0]}). "
            "Annotate it with a type that a message can carry (a number, str, list, dict, date, dataclass, "
            "pydantic model, …), or with exactly a type that is injected, such as Session: neither optional "
            "nor a subclass."
        ) from error
