"""Text that PostgreSQL takes: of a bounded size, without NUL and lone surrogates."""

import re

_REFUSED = re.compile("[\x00\ud800-\udfff]")
_CUT = "…"
#: In bits: a longer integer is written in hexadecimal.
LONGEST_DECIMAL = 10_000
_CUT_OUT = "\n… cut …\n"


def clean(text: str) -> str:
    """`text` with NUL and lone surrogates (PostgreSQL refuses both) replaced by U+FFFD."""
    if type(text) is str and text.isascii() and "\0" not in text:
        return text
    # Through bytes, so that a subclass of str with methods of its own comes back as a plain str.
    plain = str.encode(text, "utf-8", "surrogatepass").decode("utf-8", "surrogatepass")
    return _REFUSED.sub("\ufffd", plain)


def bounded(text: str, limit: int, *, keep_end: bool = False) -> str:
    """`text`, cleaned, in at most `limit` bytes of UTF-8.

    What is too long loses its end, or with `keep_end` its middle: a traceback's last lines tell the most.
    """
    plain = clean(text)
    if len(plain) * 4 <= limit:  # no character takes more bytes than four
        return plain
    data = plain.encode()
    if len(data) <= limit:
        return plain
    mark = _CUT_OUT if keep_end else _CUT
    room = limit - len(mark.encode())
    if room < 0:
        return data[:limit].decode(errors="ignore")
    head = room // 4 if keep_end else room
    tail = data[len(data) - (room - head) :]
    return data[:head].decode(errors="ignore") + mark + tail.decode(errors="ignore")


def safe_str(value: object) -> str:
    """`str(value)`, or a stand-in that names the type when its `__str__` fails. Never raises."""
    try:
        return clean(str(value))
    except BaseException:  # whatever a foreign __str__ does, the evidence must be written
        return f"<{type_name(value)}: str() failed>"


def safe_repr(value: object) -> str:
    """`repr(value)`, or a stand-in that names the type when its `__repr__` fails. Never raises."""
    try:
        return clean(repr(value))
    except BaseException:
        return f"<{type_name(value)}: repr() failed>"


def type_name(value: object) -> str:
    """The name of the value's type, `module.Class`; built-in types without a module. Never raises."""
    try:
        kind = type(value)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        return clean(f"{module}{kind.__qualname__}")
    except BaseException:
        return "<unnamed type>"


def int_text(value: int) -> str:
    """`value` in digits. Python refuses to write very many of them, save in hexadecimal."""
    return int.__repr__(value) if value.bit_length() < LONGEST_DECIMAL else hex(value)
