"""A view of any value that JSON takes: for people to read, not to send again."""

import base64
import math
from collections.abc import Mapping, Sequence, Set
from datetime import date, time
from typing import Any

from harness.core.text import clean, int_text, safe_repr, safe_str

_DEEPEST = 32
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_EXACT_INT = 2**53 - 1  # what a reader whose numbers are doubles still reads exactly


def jsonable(value: object, limit: int = 100_000) -> Any:
    """A view of `value` that JSON and `jsonb` take: for people to read, not to send again. Never raises.

    No NaN, NUL or lone surrogate; integers past 2^53 as text; bytes as `base64:…`; at most 32 levels deep and
    about `limit` characters in all. Whatever is left out shows as `…`.
    """
    return _View(limit).of(value, 0)


class _View:
    """One view, and how many characters of it are left to fill."""

    def __init__(self, limit: int) -> None:
        self.left = limit

    def of(self, value: object, depth: int) -> Any:
        self.left -= 2
        if self.left <= 0 or depth > _DEEPEST:
            return "…"
        try:
            return self._container(value, depth)
        except Exception:  # best effort: a hostile object must not cost the rest of the view
            return self.text(safe_repr(value))

    def _container(self, value: object, depth: int) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return self.text("base64:" + base64.b64encode(bytes(value)[: max(0, self.left)]).decode())
        if isinstance(value, Mapping):
            view: dict[str, Any] = {}
            for key, inner in value.items():
                if self.left <= 0:
                    view["…"] = "…"
                    break
                view[self.text(key if isinstance(key, str) else safe_str(key))] = self.of(inner, depth + 1)
            return view
        if isinstance(value, Sequence | Set):
            items: list[Any] = []
            for inner in value:
                items.append(self.of(inner, depth + 1))
                if self.left <= 0:
                    break
            return items
        return self._leaf(value)

    def _leaf(self, value: object) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return int(value) if -_EXACT_INT <= value <= _EXACT_INT else self.text(int_text(value))
        if isinstance(value, float):
            return value if math.isfinite(value) else _NOT_FINITE[float.__repr__(value)]
        return self.text(value.isoformat() if isinstance(value, date | time) else safe_str(value))

    def text(self, text: str) -> str:
        room = max(0, self.left)
        self.left -= len(text)
        return clean(text if len(text) <= room else text[:room] + "…")
