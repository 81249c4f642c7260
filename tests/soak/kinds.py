"""The kinds of jobs that a soak sends, and how each must end."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    """`task` and its arguments; `good`: it succeeds in the end; `weight`: how often it is drawn."""

    name: str
    task: str
    weight: int
    good: bool = True


KINDS = (
    Kind("success", "credit", 40),
    Kind("slow", "credit", 8),
    Kind("transient", "fails_until", 12),
    Kind("crash", "kills_child", 5),
    Kind("loses its connection", "kills_connection", 3),
    Kind("chain", "step", 6),
    Kind("eta", "credit", 6),
    Kind("duplicate", "credit", 8),
    Kind("poison", "credit", 4, good=False),
    Kind("permanent", "permanent", 4, good=False),
    Kind("crash for ever", "kills_child", 1, good=False),
    Kind("enqueue", "credit", 14),
    Kind("enqueue for later", "credit", 4),
    Kind("enqueue and send", "credit", 3),
    Kind("enqueue and roll back", "credit", 6),
)


def draw(dice: random.Random) -> Kind:
    return dice.choices(KINDS, [kind.weight for kind in KINDS])[0]


def arguments(kind: Kind, dice: random.Random) -> dict[str, Any]:
    """The arguments of one job of this kind."""
    match kind.name:
        case "slow":
            return {"pause": round(dice.uniform(0.2, 2.0), 2)}
        case "transient":
            return {"good": dice.choice((2, 3))}
        case "crash" | "loses its connection":
            return {"times": 1}
        case "poison":
            return {"points": dice.choice(("many", -5, None))}
        case "permanent" | "crash for ever":
            return {}
        case "chain":
            return {"how": dice.choice(("", "retry"))}
    return {"points": dice.randint(1, 100)}
