"""Ids of what comes after a job: the same at each firing, so that a step that is fired again is a duplicate.

Celery gives a linked signature a new id each time that it is sent. Steps of a chain and members of a chord have theirs
from the producer, and keep it.
"""

from collections.abc import Iterable, MutableMapping
from typing import Any
from uuid import UUID, uuid5

_SPACE = UUID("6c0f0d3c-51c2-5e0b-9f1e-0f6f6f1c7a3e")

Signature = MutableMapping[str, Any]


def name(signature: Signature, *path: object) -> Signature:
    """Give every task in `signature` that has no id one that follows from `path`; changed in place and returned."""
    options = signature.setdefault("options", {})
    parts = signature.get("kwargs") or {}
    match signature.get("subtask_type"):
        case "chain":
            _name_all(parts.get("tasks"), *path)
        case "group":
            options.setdefault("task_id", _id(*path))
            _name_all(parts.get("tasks"), *path)
        case "chord":
            options.setdefault("task_id", _id(*path))
            header, body = parts.get("header"), parts.get("body")
            if isinstance(header, MutableMapping):
                name(header, *path, "header")
            else:
                _name_all(header, *path, "header")
            if isinstance(body, MutableMapping):
                name(body, *path, "body")
        case _:
            options.setdefault("task_id", _id(*path))
    return signature


def name_errbacks(body: Signature) -> None:
    """Give the errbacks of a chord's body ids that follow from the body's own."""
    options = body.get("options") or {}
    errbacks = options.get("link_error") or ()
    for position, errback in enumerate(errbacks if isinstance(errbacks, (list, tuple)) else [errbacks]):
        if isinstance(errback, MutableMapping):
            name(errback, options.get("task_id"), "errback of a chord", position)


def _name_all(signatures: Any, *path: object) -> None:
    if isinstance(signatures, Iterable) and not isinstance(signatures, (str, bytes)):
        for position, signature in enumerate(signatures):
            if isinstance(signature, MutableMapping):
                name(signature, *path, position)


def _id(*path: object) -> str:
    return str(uuid5(_SPACE, "\0".join(map(str, path))))
