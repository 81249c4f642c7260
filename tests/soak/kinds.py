"""The kinds of jobs that a soak sends, and how each must end."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    """`task` and its arguments; `good`: it succeeds in the end; `weight`: how often it is drawn.

    `door`: how it comes in. `send`: straight to the broker. `enqueue`: in the producer's own transaction. `receive`: as
    somebody else's message.
    """

    name: str
    task: str
    weight: int
    good: bool = True
    door: str = "send"

    @property
    def keyed(self) -> bool:
        """Has it a place in the order of a key, which is checked?"""
        return self.task == "keyed"


KINDS = (
    Kind("success", "credit", 30),
    Kind("slow", "credit", 8),
    Kind("transient", "fails_until", 10),
    Kind("crash", "kills_child", 4),
    Kind("loses its connection", "kills_connection", 3),
    Kind("chain", "step", 6),
    Kind("eta", "credit", 5),
    Kind("duplicate", "credit", 8),
    Kind("poison", "credit", 4, good=False),
    Kind("permanent", "permanent", 4, good=False),
    Kind("crash for ever", "kills_child", 1, good=False),
    Kind("external", "outside", 6),
    Kind("enqueue", "credit", 10, door="enqueue"),
    Kind("enqueue for later", "credit", 3, door="enqueue"),
    Kind("enqueue and send", "credit", 3, door="enqueue"),
    Kind("enqueue and roll back", "credit", 4, door="enqueue"),
    Kind("enqueue external", "outside", 6, door="enqueue"),
    Kind("enqueue not ready", "waits", 6, door="enqueue"),
    Kind("keyed", "keyed", 14, door="enqueue"),
    Kind("keyed transient", "keyed", 8, door="enqueue"),
    Kind("keyed crash", "keyed", 3, door="enqueue"),
    Kind("keyed permanent", "keyed", 3, good=False, door="enqueue"),
    Kind("keyed and roll back", "keyed", 3, door="enqueue"),
    Kind("received", "taken", 14, door="receive"),
    Kind("received twice", "taken", 6, door="receive"),
    Kind("received garbage", "taken", 3, good=False, door="receive"),
)
KEYS = tuple(f"key {number}" for number in range(6))


def draw(dice: random.Random) -> Kind:
    return dice.choices(KINDS, [kind.weight for kind in KINDS])[0]


def arguments(kind: Kind, dice: random.Random) -> dict[str, Any]:
    """The arguments of one job of this kind, without those that say which one it is."""
    match kind.name:
        case "slow":
            return {"pause": round(dice.uniform(0.2, 2.0), 2)}
        case "transient":
            return {"good": dice.choice((2, 3))}
        case "crash" | "loses its connection":
            return {"times": 1}
        case "poison":
            return {"points": dice.choice(("many", -5, None))}
        case "permanent" | "crash for ever" | "enqueue not ready":
            return {}
        case "chain":
            return {"how": dice.choice(("", "retry"))}
        case "external" | "enqueue external":
            return {"how": dice.choice(("", "", "transient"))}
        case "keyed transient" | "keyed crash" | "keyed permanent":
            return {"how": kind.name.split()[-1]}
        case "keyed" | "keyed and roll back":
            return {}
        case "received" | "received twice" | "received garbage":
            return {"item": f"item {dice.randint(1, 100)}", "fails": dice.random() < 0.2}
    return {"points": dice.randint(1, 100)}
