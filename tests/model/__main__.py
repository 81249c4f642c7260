"""``python -m tests.model [--deep]``: search every world, print what was found."""

from __future__ import annotations

import sys
import time

from . import contents, order, outside
from .search import search
from .worlds import BAD, DEEP, DESIGN


def main() -> int:
    """Return 0 when the design holds and every known-bad variant breaks its promise."""
    wrong = 0
    for world in DESIGN + (DEEP if "--deep" in sys.argv[1:] else ()):
        began = time.monotonic()
        result = search(world, limit=5_000_000)
        print(f"{result}  ({time.monotonic() - began:.1f} s)", flush=True)
        wrong += bool(result.broken)
    for world, promise in BAD:
        result = search(world, look_for=(promise,))
        print(f"\nknown bad: {result}", flush=True)
        wrong += result.broken != promise
    for world in order.DESIGN:
        broken, states, way = order.search(world)
        print(f"order: {world.name}: {states} states: {f'BROKEN: {broken} {way}' if broken else 'holds'}", flush=True)
        wrong += bool(broken)
    for world, promise in order.BAD:
        broken, states, way = order.search(world)
        print(f"\nknown bad: order: {world.name}: {states} states: BROKEN: {broken}\n  " + "\n  ".join(way), flush=True)
        wrong += broken != promise
    for name, model in (("outside", outside), ("contents", contents)):
        for small, promise in (*((one, "") for one in model.DESIGN), *model.BAD):
            broken, states, way = model.search(small)
            said = f"BROKEN: {broken}" if broken else "holds"
            print(f"{'known bad: ' if promise else ''}{name}: {small.name}: {states} states: {said}", flush=True)
            print("".join(f"  {step}\n" for step in way), end="")
            wrong += broken != promise
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
