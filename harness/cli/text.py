"""Values as an operator reads and writes them."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import click

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
#: How far the second line of an entry stands in.
INDENT = "    "


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


def many(count: int, noun: str) -> str:
    """`1 letter`, `2 letters`, `1 try`, `2 tries`."""
    several = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in "aeiou" else f"{noun}s"
    return f"{count} {noun if count == 1 else several}"


def plain(text: str) -> str:
    """`text` without what would steer the terminal: payloads and errors come from strangers."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def line(text: str, longest: int = 80) -> str:
    """The beginning of `text` on one line."""
    flat = " ".join(plain(text).split())
    return flat if len(flat) <= longest else flat[: max(longest, 1) - 1] + "…"


def entries(head: Sequence[str], rows: Iterable[tuple[Sequence[str], str]], width: int) -> list[str]:
    """The lines of a list with two for each entry: short values below the names of `head`, then a text.

    A name that begins with `>` stands at the right of its column. The last column may be as long as it likes, so that
    it can be copied whole; the text is cut at `width`.
    """
    made = [([_one_word(value) for value in values], detail) for values, detail in rows]
    names = [name.removeprefix(">") for name in head]
    widths = [max(len(row[i]) for row in [names, *(values for values, _ in made)]) for i in range(len(head))]

    def laid(values: Sequence[str]) -> str:
        cells = [v.rjust(w) if name[0] == ">" else v.ljust(w) for v, w, name in zip(values, widths, head, strict=True)]
        return "  ".join(cells).rstrip()

    lines = [laid(names)]
    for values, detail in made:
        lines += [laid(values), INDENT + line(detail, width - len(INDENT))]
    return lines


def _one_word(value: str) -> str:
    return " ".join(plain(value).split())
