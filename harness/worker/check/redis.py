"""Reads a Redis-protocol server: what happens to its data when memory or power ends, and what it does for a fetch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from celery import Celery
from kombu import Connection

from harness.worker.check.redis_rights import missing


@dataclass(frozen=True, slots=True)
class Redis:
    """None: the server does not say. `maxmemory` in bytes, 0 for no limit; `saves`: are snapshots taken?

    `no_rights`: what the workers' user may not do, of all that a worker needs; `no_tracking`: why the server does not
    tell of changes. Both are empty where all is well.
    """

    policy: str | None = None
    maxmemory: int | None = None
    append_only: bool | None = None
    append_fsync: str | None = None
    saves: bool | None = None
    problem: str = ""
    no_rights: str = ""
    no_tracking: str = ""


def read(connection: Connection, app: Celery) -> Redis:
    """Look at the server behind a connected `connection`: by INFO, and by CONFIG where it is allowed."""
    client = connection.default_channel.client
    info, problem = _ask(client, "INFO")
    config: dict[str, Any] = {}
    for name in ("maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "save"):
        answer, refused = _ask(client, "CONFIG", name)
        problem = problem or refused
        config |= answer
    maxmemory = info.get("maxmemory", config.get("maxmemory"))
    aof = info.get("aof_enabled")
    append_only = bool(int(aof)) if aof is not None else _is_on(config.get("appendonly"))
    return Redis(
        policy=info.get("maxmemory_policy", config.get("maxmemory-policy")),
        maxmemory=None if maxmemory is None else int(maxmemory),
        append_only=append_only,
        append_fsync=config.get("appendfsync"),
        saves=bool(config["save"]) if "save" in config else None,
        problem=problem,
        no_rights=missing(connection, app),
        no_tracking=_refusal(client, "CLIENT", "TRACKING", "OFF"),
    )


def _refusal(client: Any, *command: Any) -> str:
    from redis.exceptions import ResponseError

    try:
        client.execute_command(*command)
        return ""
    except ResponseError as error:
        return str(error)[:120]


def _is_on(value: str | None) -> bool | None:
    return None if value is None else value == "yes"


def _ask(client: Any, command: str, *words: str) -> tuple[Mapping[str, Any], str]:
    """The answer, or nothing and why."""
    from redis.exceptions import RedisError

    try:
        answer = client.info() if command == "INFO" else client.config_get(*words)
        return {_text(key): _text(value) for key, value in answer.items()}, ""
    except RedisError as error:
        return {}, f"{command} is refused ({str(error)[:80]})"


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
