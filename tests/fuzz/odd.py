"""Values that no producer in its right mind sends."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any

INTEGERS = (0, 1, -1, 2, 255, 256, -32_769, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63), 2**64, 10**30)
FLOATS = (0.0, -0.0, 0.1, -1.5, 1e308, 5e-324, math.nan, math.inf, -math.inf)
TEXTS = (
    "",
    " ",
    "\0",
    "a\0b",
    "\ud800",
    "a\udfffz",
    "\ufeff",
    "\u202ereversed",
    "\N{PILE OF POO}" * 3,
    "'; DROP TABLE core.inbox; --",
    "../../etc/passwd",
    "%s %(x)s {0}",
    "\x1b[2J",
    "null",
    "0",
    "-1",
    "1e999",
    "True",
    "credit",
    "tests/credit",
    "jobs",
    "2026-01-01T00:00:00",
    "9999-12-31T23:59:59+00:00",
    "0001-01-01",
    "application/json",
    "utf-8",
    "x" * 256,
    "ü" * 300,
)
TIMES = (
    "2020-01-01T00:00:00+00:00",
    "2020-01-01",
    "2999-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999-12:00",
    "0001-01-01T00:00:00+14:00",
    "20260101T000000Z",
    "tomorrow",
    "",
    "1700000000",
    "2026-13-45T99:99:99",
    "2026-01-01T00:00:00+99:99",
)


def scalar(random: Random, amqp: bool) -> Any:
    """One value without parts."""
    kind = random.randrange(10 if amqp else 7)
    match kind:
        case 0:
            return None
        case 1:
            return random.random() < 0.5
        case 2:
            return random.choice(INTEGERS)
        case 3:
            return random.choice(FLOATS)
        case 4 | 5:
            return random.choice(TEXTS)
        case 6:
            return "".join(chr(random.randrange(0x2000)) for _ in range(random.randrange(40)))
        case 7:
            return random.randbytes(random.randrange(40))
        case 8:
            return Decimal(random.randrange(-(2**31), 2**31)).scaleb(-random.randrange(10))
    return datetime.fromtimestamp(random.randrange(2**32), UTC)


def value(random: Random, amqp: bool, depth: int = 3) -> Any:
    """A value, most often one without parts."""
    kind = random.randrange(8)
    if depth == 0 or kind < 5:
        return scalar(random, amqp)
    if kind == 5:
        return [value(random, amqp, depth - 1) for _ in range(random.randrange(4))]
    if kind == 6:
        return {key(random): value(random, amqp, depth - 1) for _ in range(random.randrange(4))}
    return nested(random, amqp)


def nested(random: Random, amqp: bool) -> Any:
    """Lists or objects in each other, deeply."""
    inner: Any = scalar(random, amqp)
    for _ in range(random.choice((5, 40, 150))):
        inner = [inner] if random.random() < 0.5 else {"a": inner}
    return inner


def key(random: Random) -> str:
    """The name of something."""
    return random.choice((*TEXTS, "a", "b", "__type__", "$bytes", "task", "id"))[:60]
