"""Signatures of next steps: right ones, and such that nobody can send."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.fuzz import odd

OPTIONS = (
    "task_id",
    "queue",
    "exchange",
    "routing_key",
    "countdown",
    "expires",
    "priority",
    "serializer",
    "compression",
    "headers",
    "link",
    "link_error",
    "chord",
    "chain",
    "retry",
    "retry_policy",
    "producer",
    "publisher",
    "connection",
    "router",
    "reply_to",
    "group_id",
    "group_index",
    "root_id",
    "delivery_mode",
    "stamped_headers",
    "time_limit",
    "soft_time_limit",
    "shadow",
    "ignore_result",
    "argsrepr",
    "add_to_parent",
    "declare",
    "mandatory",
    "immediate",
    "content_type",
    "correlation_id",
    "args",
    "kwargs",
)
CHOSEN: dict[str, tuple[Any, ...]] = {
    "queue": ("elsewhere", "no\0queue", "q" * 300),
    "exchange": ("no-such-exchange", "amq.fanout", ""),
    "serializer": ("no-such", "pickle", "yaml", "msgpack"),
    "compression": ("no-such", "zlib"),
    "priority": (9, -1, 300, "high"),
    "delivery_mode": (7, "x"),
    "retry_policy": ({"max_retries": None}, {"max_retries": 10**9, "interval_start": 10**6}, {"no": 1}, 5),
    "declare": ([], [5]),
    "countdown": (1, 10**9, "soon"),
}


def signature(random: Random, amqp: bool, name: str, depth: int = 2) -> dict[Any, Any]:
    """One step; half of them as they should be."""
    made: dict[Any, Any] = {
        "task": random.choice(("credit", "step", "errback", "total", "nobody.knows")),
        "args": [],
        "kwargs": {},
        "options": {},
        "subtask_type": None,
        "immutable": random.random() < 0.7,
        "chord_size": None,
    }
    if depth and random.random() < 0.2:
        kind = random.choice(("chain", "group", "chord"))
        parts = [signature(random, amqp, f"{name}.{n}", depth - 1) for n in range(random.randrange(3))]
        made |= {"task": f"celery.{kind}", "subtask_type": kind, "kwargs": {"tasks": parts}}
        if kind == "chord":
            made["kwargs"] = {"header": parts, "body": signature(random, amqp, f"{name}.b", depth - 1)}
    for _ in range(random.choice((0, 0, 0, 1, 1, 2))):
        if random.random() < 0.6:
            option = random.choice(OPTIONS)
            made["options"][option] = random.choice((*CHOSEN.get(option, ()), odd.value(random, False)))
        else:
            field = random.choice([*made])
            made[field] = odd.value(random, False)
            if not isinstance(made.get("options"), dict):
                break
    return made


def embed(random: Random, amqp: bool, name: str) -> dict[str, Any]:
    """What stands third in the body."""
    made: dict[str, Any] = {"callbacks": None, "errbacks": None, "chain": None}
    for key in random.sample(("callbacks", "errbacks", "chain", "chord"), random.randrange(1, 3)):
        if key == "chord":
            made[key] = signature(random, amqp, f"{name}.{key}") | {"chord_size": random.choice((1, 1, 2, "x"))}
        else:
            made[key] = [signature(random, amqp, f"{name}.{key}.{n}") for n in range(random.randrange(1, 3))]
    return made
