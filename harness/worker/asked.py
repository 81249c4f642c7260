"""What a message says of what comes after its job, and of who asks for its result."""

from collections.abc import Mapping
from typing import Any

from celery.app.task import Context
from celery.backends.base import DisabledBackend

from harness.worker.decode import payload_of
from harness.worker.wire import Wire

_EMBEDDED = ("callbacks", "errbacks", "chain", "chord")
_SHAPE: dict[str, tuple[type, ...]] = {
    "task": (str,),
    "args": (list, tuple),
    "kwargs": (Mapping,),
    "options": (Mapping,),
    "subtask_type": (str,),
}


class WrongStep(ValueError):
    """What a message says to come after its job is nothing that could ever be sent."""


def check_steps(embed: Mapping[str, Any]) -> None:
    """Raise WrongStep for next steps of a wrong shape.

    It is asked before the work: an operator who sees the message as a dead letter can mend it, and nothing is done yet.
    """
    for name in ("callbacks", "errbacks", "chain"):
        steps = embed.get(name)
        if not steps:
            continue
        if not isinstance(steps, (list, tuple)):
            raise WrongStep(f"`{name}` is no list of signatures, but {type(steps).__name__}")
        for position, step in enumerate(steps):
            _check_step(step, f"{name}[{position}]")
    if embed.get("chord"):
        _check_step(embed["chord"], "chord")


def _check_step(step: Any, where: str) -> None:
    if not isinstance(step, Mapping):
        raise WrongStep(f"`{where}` is no signature, but {type(step).__name__}")
    for name, kinds in _SHAPE.items():
        if step.get(name) is not None and not isinstance(step[name], kinds):
            raise WrongStep(f"`{where}.{name}` is of the wrong type: {type(step[name]).__name__}")
    if not step.get("task"):
        raise WrongStep(f"`{where}` names no task")


def _sound(name: str, steps: Any) -> Any:
    """The steps, where they could ever be sent; else None: nobody tries to tell them of the job's end."""
    try:
        check_steps({name: steps})
    except WrongStep:
        return None
    return steps


def goes_on(embed: Mapping[str, Any]) -> bool:
    """Does anything come after the job when it is done?"""
    return bool(embed.get("callbacks") or embed.get("chain") or embed.get("chord"))


def asks_result(task: Any, request: Mapping[str, Any], embed: Mapping[str, Any]) -> bool:
    """May a duplicate have to answer with the result? Where something comes after the job, or its result is stored."""
    if goes_on(embed):
        return True
    ignored = request.get("ignore_result")
    return not (task.ignore_result if ignored is None else ignored) and not isinstance(task.backend, DisabledBackend)


def request_of(wire: Wire, accept: Any) -> Context | None:
    """The request of a message that no handler runs, as far as it can be read; None where it has no id of its own.

    `accept`: the content types that are read, as `Harness.accepts` has them.
    """
    job_id = wire.says("id")
    if not isinstance(job_id, str) or not job_id:
        return None
    try:
        payload = payload_of(wire.message, accept)
        embed = payload if isinstance(payload, Mapping) else payload[2]
        embed = {key: _sound(key, embed.get(key)) for key in _EMBEDDED}
    except Exception:
        embed = {}
    headers = {key: value for key, value in wire.message.headers.items() if isinstance(key, str)}
    own = {"id": job_id, "task": wire.says("task"), "args": (), "kwargs": {}, "delivery_info": {}, "is_eager": False}
    return Context(headers, **own, **embed)
