"""Values as an operator reads and writes them."""

import re
from datetime import datetime
from typing import Any

import click

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Duration(click.ParamType[float]):
    """`90s`, `15m`, `2h`, `7d`, `1d12h`: seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        parts = re.findall(r"(\d+(?:\.\d+)?)([smhdw])", value)
        if not parts or "".join(number + unit for number, unit in parts) != value:
            self.fail(f"{value!r} is no duration; write for example 90s, 15m, 2h, 7d or 1d12h.", param, ctx)
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
        if seconds > 1000 * 365 * 86_400:
            self.fail(f"{value!r} is longer than a thousand years.", param, ctx)
        return seconds


def span(seconds: float) -> str:
    """A length of time in its two largest units: `2h 5m`."""
    left, words = round(abs(seconds)), []
    for unit in "dhms":
        count, left = divmod(left, _UNITS[unit])
        if count:
            words.append(f"{count}{unit}")
    return " ".join(words[:2]) or "0s"


def moment(value: datetime | None) -> str:
    """A time to the second, with its zone."""
    return "" if value is None else value.isoformat(sep=" ", timespec="seconds")


def plain(text: str) -> str:
    """`text` without what would steer the terminal: payloads and errors come from strangers."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def line(text: str, longest: int = 80) -> str:
    """The beginning of `text` on one line."""
    flat = " ".join(plain(text).split())
    return flat if len(flat) <= longest else flat[: longest - 1] + "…"
