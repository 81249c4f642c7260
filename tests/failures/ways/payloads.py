"""Way 10: payloads that something on the way may not survive."""

import json
import zlib

from tests.failures.case import Case, Send
from tests.worker.wires import Raw, body


def exotic(name: str, said: str, raw: Raw, letters: dict[str, int] | None = None) -> Case:
    return Case(name, 10, said, [Send("echo", raw=raw)], 0 if letters else 1, letters or {})


def _raw(text: str) -> Raw:
    return Raw(text.encode("utf-8", "surrogatepass"))


_DEEP = "[" * 100_000 + "]" * 100_000

CASES = [
    exotic("NUL character", "a NUL in a text", Raw(body((), {"x": "a\0b"}))),
    exotic("lone surrogate", "an escape that is half a character", _raw('[[], {"x": "\\ud800"}, {}]')),
    exotic("NaN and Infinity", "what JSON does not know", _raw('[[], {"x": NaN, "y": Infinity}, {}]')),
    exotic("integer beyond 64 bits", "2 to the power of 70", _raw(f'[[], {{"x": {2**70}}}, {{}}]')),
    exotic("duplicate keys", "the same name twice", _raw('[[], {"x": 1, "x": 2}, {}]')),
    exotic("deep nesting", "500 lists in each other", _raw('[[], {"x": ' + "[" * 500 + "]" * 500 + "}, {}]")),
    exotic(
        "too deep nesting", "100,000 lists in each other", _raw('[[], {"x": ' + _DEEP + "}, {}]"), {"undecodable": 1}
    ),
    exotic("10 MB", "a long text", Raw(body((), {"x": "y" * 10_000_000}))),
    exotic("not UTF-8", "bytes that are no UTF-8", Raw(b'[[], {"x": "\xff\xfe"}, {}]'), {"undecodable": 1}),
    exotic(
        "compressed",
        "zlib's format, as Celery compresses",
        Raw(zlib.compress(body((), {"x": 1})), {"compression": "application/x-gzip"}, content_encoding="utf-8"),
    ),
    exotic(
        "compressed, cut off",
        "a stream without its end",
        Raw(zlib.compress(body((), {"x": "y" * 1000}))[:-10], {"compression": "application/x-gzip"}),
        {"undecodable": 1},
    ),
    exotic(
        "kombu's own types",
        "a date and a UUID of kombu's JSON",
        _raw(json.dumps([[], {"x": {"__type__": "datetime", "__value__": "2026-01-01T00:00:00"}}, {}])),
    ),
    exotic("no arguments", "empty kwargs", Raw(b"[[], {}, {}]")),
]
