"""Message headers and properties as bytes and back, without loss.

AMQP headers hold bytes, decimals and times; `jsonb` keeps neither NUL nor NaN. So they are kept as JSON text in
`bytea`, where a dict with the single key "$…" stands for a value that JSON lacks.
"""

import base64
import json
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID


def dumps(value: dict[str, Any]) -> bytes:
    """Encode; a value of a type that is not known is kept as its `repr`."""
    return json.dumps(_wrap(value), separators=(",", ":")).encode("ascii")


def loads(data: bytes) -> dict[str, Any]:
    """Decode what `dumps` made."""
    value = json.loads(data)
    # Inside of a text the quote is escaped: only a value that JSON lacks begins like this.
    if b'{"$' in data:
        value = _unwrap(value)
    assert isinstance(value, dict)
    return value


def _wrap(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes() | bytearray() | memoryview():
            return {"$bytes": base64.b64encode(bytes(value)).decode("ascii")}
        case datetime():
            return {"$datetime": value.isoformat()}
        case Decimal():
            return {"$decimal": str(value)}
        case UUID():
            return {"$uuid": str(value)}
        case dict():
            plain = all(isinstance(key, str) for key in value) and not (
                len(value) == 1 and next(iter(value)).startswith("$")
            )
            if plain:
                return {key: _wrap(item) for key, item in value.items()}
            return {"$dict": [[_wrap(key), _wrap(item)] for key, item in value.items()]}
        case list() | tuple() | set() | frozenset():
            return [_wrap(item) for item in value]
        case _:
            return repr(value)


_READERS: dict[str, Any] = {
    "$bytes": base64.b64decode,
    "$datetime": datetime.fromisoformat,
    "$decimal": Decimal,
    "$uuid": UUID,
}


def _unwrap(value: Any) -> Any:
    if isinstance(value, list):
        return [_unwrap(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(key, item)] = value.items()
        if key == "$dict":
            return {_unwrap(k): _unwrap(v) for k, v in item}
        if key in _READERS:
            return _READERS[key](item)
    return {key: _unwrap(item) for key, item in value.items()}
