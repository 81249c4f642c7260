"""What a message says of what comes after its job, and of who asks for its result."""

from collections.abc import Mapping
from typing import Any

from celery.app.task import Context
from celery.backends.base import DisabledBackend

from harness.worker.decode import payload_of
from harness.worker.wire import Wire

_EMBEDDED = ("callbacks", "errbacks", "chain", "chord")


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
        embed = {key: embed.get(key) for key in _EMBEDDED}
    except Exception:
        embed = {}
    headers = {key: value for key, value in wire.message.headers.items() if isinstance(key, str)}
    own = {"id": job_id, "task": wire.says("task"), "args": (), "kwargs": {}, "delivery_info": {}, "is_eager": False}
    return Context(headers, **own, **embed)
