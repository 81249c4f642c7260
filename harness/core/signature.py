"""The handler's signature is its schema: what a message must carry, and how the handler is called with it."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pydantic
from pydantic_core import ArgsKwargs

from harness.core.errors import SignatureError, UsageError
from harness.core.handler import (
    Handler,
    adapter_of,
    hint_of,
    key_of,
    name_of,
    refuse_unannotated,
    refuse_unawaited,
    signature_of,
)
from harness.core.payload import invalid, wrong_shape

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments."""

_PARAMETER = inspect.Parameter
_SEVERAL = (_PARAMETER.VAR_POSITIONAL, _PARAMETER.VAR_KEYWORD)


@dataclass(frozen=True)
class Signature:
    """A handler's parameters, split into what a message carries and what the harness injects.

    `injected` maps the name of each injected parameter to the key of its value.
    """

    full: inspect.Signature
    sent: inspect.Signature
    injected: Mapping[str, str]
    adapter: pydantic.TypeAdapter[Any]
    plan: "_Plan | None" = None

    @classmethod
    def of(cls, handler: Handler, injected: Mapping[type, str], bound: bool = False) -> Self:
        """Read `handler`. `injected` maps a type to the key under which `bind` finds the value for a
        parameter with exactly that annotation. `bound` skips the first parameter, the `self` of a bound task.

        Raises `SignatureError`, at once, for what could not be validated or called later.
        """
        refuse_unawaited(handler)
        parameters = list(signature_of(handler).parameters.values())
        if bound:
            if not parameters or parameters[0].kind not in (
                _PARAMETER.POSITIONAL_ONLY,
                _PARAMETER.POSITIONAL_OR_KEYWORD,
            ):
                raise SignatureError(f"{name_of(handler)} is a bound task but takes no `self`. Add it.")
            parameters = parameters[1:]
        parameters = [p.replace(annotation=hint_of(handler, p)) for p in parameters]
        keys = {p.name: key for p in parameters if (key := key_of(p, injected)) is not None}
        refuse_unannotated(handler, parameters, injected)
        for parameter in parameters:
            if parameter.name in keys and parameter.kind in _SEVERAL:
                raise SignatureError(
                    f"{name_of(handler)}: the parameter {parameter} would be injected, but only a single value "
                    "can be. Write it without the star."
                )
        sent = [p for p in parameters if p.name not in keys]
        sent_signature = inspect.Signature(sent)
        adapter = adapter_of(handler, sent_signature)
        return cls(inspect.Signature(parameters), sent_signature, keys, adapter, _Plan.of(parameters, keys))

    def validate(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        """The message's arguments, converted to what the type hints say, with the defaults filled in.

        Raises `InvalidPayload`, with a message that names each wrong argument.
        """
        problem = wrong_shape(args, kwargs, self.injected)
        if problem is not None:
            raise problem
        try:
            valid: ArgsKwargs = self.adapter.validate_python(ArgsKwargs(tuple(args), dict(kwargs)))
        except pydantic.ValidationError as error:
            found = invalid(error, self.sent)
        else:
            return valid.args, valid.kwargs or {}
        # Outside of the except block: the cause would only repeat the message, with a URL for each line.
        raise found

    def bind(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        injected_values: Mapping[str, Any],
    ) -> Arguments:
        """The arguments to call the handler with: validated ones, and `injected_values` by their keys.

        Raises `UsageError` where a value to inject is missing.
        """
        if self.plan is not None and (call := self.plan.call(args, kwargs, injected_values)) is not None:
            return call
        arguments = dict(self.sent.bind(*args, **kwargs).arguments)
        for name, key in self.injected.items():
            if key not in injected_values:
                raise UsageError(f"{name!r} needs the value {key!r}, which is not there to inject.")
            arguments[name] = injected_values[key]
        ordered = {name: arguments[name] for name in self.full.parameters if name in arguments}
        bound = inspect.BoundArguments(self.full, ordered)
        bound.apply_defaults()
        return bound.args, bound.kwargs


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a handler without starred parameters is called: what `inspect` would find out again for every message.

    `sent` are the names of what a message can give by position, `positional` and `named` those of the whole call.
    """

    sent: tuple[str, ...]
    positional: tuple[str, ...]
    named: tuple[str, ...]
    injected: Mapping[str, str]

    @classmethod
    def of(cls, parameters: list[inspect.Parameter], injected: Mapping[str, str]) -> "_Plan | None":
        if any(parameter.kind in _SEVERAL for parameter in parameters):
            return None
        positional = tuple(p.name for p in parameters if p.kind is not _PARAMETER.KEYWORD_ONLY)
        return cls(
            sent=tuple(name for name in positional if name not in injected),
            positional=positional,
            named=tuple(p.name for p in parameters if p.kind is _PARAMETER.KEYWORD_ONLY),
            injected=injected,
        )

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any], values: Mapping[str, Any]) -> Arguments | None:
        """The call, or None where a value is missing, given twice or unknown: `inspect` says best what is wrong."""
        found = {**dict(zip(self.sent, args, strict=False)), **kwargs}
        if len(args) > len(self.sent) or len(found) != len(args) + len(kwargs):
            return None
        try:
            found.update([(name, values[key]) for name, key in self.injected.items()])
            if len(found) != len(self.positional) + len(self.named):
                return None
            return tuple([found[name] for name in self.positional]), {name: found[name] for name in self.named}
        except KeyError:
            return None
