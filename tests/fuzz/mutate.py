"""Messages to send: valid ones with something wrong in them. The same seed and number make the same message."""

from __future__ import annotations

import base64
import bz2
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgpack

from tests.fuzz import odd
from tests.fuzz.signatures import embed, signature

HEADERS = (
    "id",
    "task",
    "root_id",
    "parent_id",
    "group",
    "group_index",
    "timelimit",
    "eta",
    "expires",
    "retries",
    "argsrepr",
    "kwargsrepr",
    "lang",
    "shadow",
    "stamps",
    "stamped_headers",
    "origin",
    "ignore_result",
    "meth",
    "replaced_task_nesting",
    "compression",
    "redelivered",
    "reply_to",
    "correlation_id",
    "headers",
    "delivery_info",
    "args",
    "kwargs",
    "hostname",
    "is_eager",
    "called_directly",
    "callbacks",
    "errbacks",
    "chain",
    "chord",
    "children",
    "_protected",
)
OWN = (
    "harness_consumer",
    "harness_generation",
    "harness_ignores",
    "harness_dispatch",
    "harness_replay",
    "harness_correlation_id",
    "harness_sent_at",
    "harness_tenant",
    "harness_ordering_key",
    "harness_raw",
)
FORGED: dict[str, tuple[Any, ...]] = {
    "harness_consumer": ("tests/credit", "tests/step", "other/credit", "credit", "tests/", "/"),
    "harness_generation": (0, 1, 7, "0", "3", -1, 10**18 - 1, 2**63 - 1, "٣", True),
    "harness_dispatch": (0, 1, 2, 99, "2", -5),
    "harness_ignores": ("eta", "expires", "eta expires", "id"),
    "harness_replay": (1, "1", 10**12),
    "harness_sent_at": ("2001-01-01T00:00:00.000+00:00", "2999-01-01T00:00:00.000+00:00", *odd.TIMES),
}
PROPERTIES = ("priority", "delivery_mode", "correlation_id", "reply_to", "expiration", "message_id", "type", "app_id")
TYPES = (
    "application/json",
    "application/data",
    "application/x-python-serialize",
    "application/x-msgpack",
    "application/x-yaml",
    "application/x-unknown",
    "application/text",
    "text/plain",
    "",
    "json",
)
ENCODINGS = (
    "utf-8",
    "binary",
    "us-ascii",
    "utf-16",
    "latin-1",
    "base64",
    "rot13",
    "hex",
    "idna",
    "",
    "no-such",
    "utf-7",
)
COMPRESSIONS = ("application/x-gzip", "gzip", "zlib", "application/x-bz2", "lzma", "zstd", "no-such", "")


@dataclass
class Item:
    """One message. `raw` (Redis protocol only) is put into the list as it is, instead of an envelope."""

    number: int
    body: bytes
    headers: dict[Any, Any]
    content_type: Any = "application/json"
    content_encoding: Any = "utf-8"
    properties: dict[str, Any] = field(default_factory=dict)
    envelope: dict[str, Any] = field(default_factory=dict)
    raw: bytes | None = None
    done: list[str] = field(default_factory=list)


@dataclass
class Tools:
    """What a mutation needs."""

    random: Random
    amqp: bool

    def odd(self) -> Any:
        return odd.value(self.random, self.amqp)


def item(seed: int, number: int, amqp: bool) -> Item:
    """Message `number` of a run."""
    random = Random(f"{seed} {number} {amqp}")
    tools = Tools(random, amqp)
    made = _valid(tools, seed, number)
    for _ in range(random.choice((0, 1, 1, 1, 1, 2, 2, 3))):
        _, mutations = zip(*_MUTATIONS, strict=True)
        weights = [weight for weight, _ in _MUTATIONS]
        mutation = random.choices(mutations, weights)[0]
        mutation(made, tools)
        made.done.append(mutation.__name__.strip("_"))
    if not amqp:
        _in_redis(made, tools)
    return made


# -- what is right ----------------------------------------------------------------------------------------------------


def _call(tools: Tools, number: int) -> tuple[str, list[Any], dict[str, Any]]:
    calls: tuple[tuple[str, list[Any], dict[str, Any]], ...] = (
        ("credit", [], {"points": number + 1}),
        ("credit", [number + 1], {}),
        ("step", [], {"add": number + 1}),
        ("step", [], {"add": number + 1, "how": "retry"}),
        ("step", [], {"add": number + 1, "how": "dead"}),
        ("total", [[number, 1]], {}),
        ("fails_until", [2], {}),
        ("echo", [], {"number": number}),
        ("returns_unserialisable", [], {}),
        ("nobody.knows", [number], {}),
    )
    return tools.random.choice(calls)


def _valid(tools: Tools, seed: int, number: int) -> Item:
    random = tools.random
    task, args, kwargs = _call(tools, number)
    job_id = f"f{seed}-{number}"
    if random.random() < 0.2:
        head = {"id": job_id, "task": task, "args": args, "kwargs": kwargs, "retries": 0, "utc": True}
        head |= {"eta": None, "expires": None, "callbacks": None, "errbacks": None, "chord": None}
        return Item(number, json.dumps(head).encode(), {})
    after = embed(random, tools.amqp, job_id) if random.random() < 0.3 else {"callbacks": None, "errbacks": None}
    headers = {"lang": "py", "task": task, "id": job_id, "root_id": job_id, "parent_id": None, "group": None}
    headers |= {"retries": 0, "eta": None, "expires": None, "timelimit": [None, None], "origin": "fuzz"}
    if "chord" in after:
        headers["group"] = f"{job_id}-group"
    return Item(number, json.dumps([args, kwargs, after]).encode(), headers)


# -- what goes wrong --------------------------------------------------------------------------------------------------


def _flips(it: Item, tools: Tools) -> None:
    body = bytearray(it.body)
    for _ in range(tools.random.choice((1, 1, 2, 8))):
        if body:
            body[tools.random.randrange(len(body))] = tools.random.randrange(256)
    it.body = bytes(body)


def _cuts(it: Item, tools: Tools) -> None:
    it.body = it.body[: tools.random.randrange(len(it.body) + 1)]


def _repeats(it: Item, tools: Tools) -> None:
    start = tools.random.randrange(len(it.body) + 1)
    it.body = it.body[:start] + it.body[start:] * tools.random.choice((2, 3, 50))


def _other_body(it: Item, tools: Tools) -> None:
    random = tools.random
    it.body = random.choice(
        (
            b"",
            b"null",
            b"[]",
            b"{}",
            b"[[],{},null]",
            b"[[],{}]",
            b"[[" * 5000,
            b'{"a":' * 3000,
            b"\xff\xfe\x00\x00",
            b"NaN",
            b"[[NaN], {}, {}]",
            b'[[], {"points": 1, "points": 2}, {}]',
            b'[[], {"points": ' + b"9" * 6000 + b"}, {}]",
            b'[[], {"\\ud800": 1}, {}]',
            b'[[], {"a\\u0000b": 1}, {}]',
            b'[[], {"__type__": "uuid", "__value__": 5}, {}]',
            b'[[{"__type__": "datetime", "__value__": "x"}], {}, {}]',
            b'[[], {}, {"callbacks": {}}]',
            b'{"task": "credit", "id": 5, "args": [], "kwargs": {}}',
            b'{"task": "credit", "args": 5, "kwargs": []}',
            random.randbytes(random.randrange(200)),
            json.dumps(tools_json(tools)).encode(),
            json.dumps([tools_json(tools), tools_json(tools), tools_json(tools)]).encode(),
            msgpack.packb([[], {"points": it.number + 1}, {}]),
        )
    )
    it.body += b" " * (it.number % 50)


def tools_json(tools: Tools) -> Any:
    """An odd value that JSON takes."""
    return odd.value(tools.random, False)


def _part(it: Item, tools: Tools) -> None:
    """Something in the decoded body is something else."""
    try:
        whole = json.loads(it.body)
        at = whole
        for _ in range(tools.random.randrange(1, 5)):
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            last = tools.random.choice(keys)
            if not isinstance(at[last], (dict, list)) or not at[last]:
                break
            parent, at = at, at[last]
        else:
            at = parent
        at[last] = tools_json(tools)
        it.body = json.dumps(whole).encode()
    except Exception:
        _flips(it, tools)


def _compressed(it: Item, tools: Tools) -> None:
    name = tools.random.choice(COMPRESSIONS)
    it.headers["compression"] = name
    if tools.random.random() < 0.7:
        pack = {"application/x-gzip": zlib.compress, "gzip": zlib.compress, "application/x-bz2": bz2.compress}
        it.body = pack.get(name, zlib.compress)(it.body)


def _content(it: Item, tools: Tools) -> None:
    random = tools.random
    it.content_type = random.choice((*TYPES, it.content_type))
    it.content_encoding = random.choice((*ENCODINGS, it.content_encoding))
    if random.random() < 0.2:
        it.body = it.body.decode("latin-1").encode("utf-16")
    if not tools.amqp and random.random() < 0.3:
        it.content_type = tools.odd()
    if tools.amqp and random.random() < 0.2:
        it.content_type = b"\xff\xfe"


def _header(it: Item, tools: Tools) -> None:
    name = tools.random.choice(HEADERS)
    it.headers[name] = tools.odd()
    if name in ("eta", "expires") and tools.random.random() < 0.6:
        it.headers[name] = tools.random.choice(odd.TIMES)
    if name == "timelimit" and tools.random.random() < 0.6:
        pair = [odd.scalar(tools.random, tools.amqp) for _ in range(2)]
        it.headers[name] = [None if isinstance(x, float) and 0 < x < 1 else x for x in pair]


def _no_header(it: Item, tools: Tools) -> None:
    if it.headers:
        del it.headers[tools.random.choice(list(it.headers))]


def _no_headers(it: Item, tools: Tools) -> None:
    it.headers = {odd.key(tools.random): tools.odd() for _ in range(tools.random.randrange(3))}


def _forged(it: Item, tools: Tools) -> None:
    for name in tools.random.sample(OWN, tools.random.randrange(1, 4)):
        it.headers[name] = tools.random.choice((*FORGED.get(name, ()), tools.odd()))


def _property(it: Item, tools: Tools) -> None:
    it.properties[tools.random.choice(PROPERTIES)] = tools.odd()


def _after(it: Item, tools: Tools) -> None:
    """Garbage where the next steps stand."""
    try:
        whole = json.loads(it.body)
        name = tools.random.choice(("callbacks", "errbacks", "chain", "chord"))
        made = signature(tools.random, False, f"{it.number}")
        where = whole[2] if isinstance(whole, list) else whole
        where[name] = tools.random.choice((tools_json(tools), made, [made], [made, tools_json(tools)], [[made]]))
        it.body = json.dumps(whole).encode()
    except Exception:
        _flips(it, tools)


def _huge(it: Item, tools: Tools) -> None:
    size = tools.random.choice((70_000, 300_000))
    if tools.random.random() < 0.5:
        it.headers[tools.random.choice(("id", "task", "argsrepr", "root_id", "shadow", "origin"))] = "x" * size
    else:
        it.body = json.dumps([[], {"points": it.number + 1, "more": "y" * size}, {}]).encode()


def _known_id(it: Item, tools: Tools) -> None:
    it.headers["id"] = tools.random.choice(("the same", "a\0b", "\ud800", "x" * 300, " ", "ü", "\u202e"))


def _redelivered(it: Item, tools: Tools) -> None:
    it.headers["redelivered"] = True
    it.properties.setdefault("delivery_info", {})["redelivered"] = tools.random.choice((True, "yes", 1, [1]))


_MUTATIONS: list[tuple[int, Callable[[Item, Tools], None]]] = [
    (5, _flips),
    (3, _cuts),
    (1, _repeats),
    (6, _other_body),
    (8, _part),
    (4, _compressed),
    (5, _content),
    (16, _header),
    (4, _no_header),
    (2, _no_headers),
    (10, _forged),
    (6, _property),
    (10, _after),
    (1, _huge),
    (1, _known_id),
    (3, _redelivered),
]


# -- on a Redis-protocol broker ----------------------------------------------------------------------------------------


def _in_redis(it: Item, tools: Tools) -> None:
    """The envelope; and in some cases something wrong with it."""
    random = tools.random
    info = {"exchange": "", "routing_key": "jobs"} | it.properties.pop("delivery_info", {})
    properties: dict[str, Any] = {
        "body_encoding": "base64",
        "delivery_tag": f"tag-{it.number}-{random.randrange(2**32)}",
        "delivery_mode": 2,
        "delivery_info": info,
        "priority": 0,
        "correlation_id": f"c{it.number}",
        "reply_to": "",
    } | it.properties
    envelope: dict[str, Any] = {
        "body": base64.b64encode(it.body).decode(),
        "content-type": it.content_type,
        "content-encoding": it.content_encoding,
        "headers": it.headers,
        "properties": properties,
    }
    if random.random() < 0.08:
        where = random.choice((envelope, properties, info))
        name = random.choice(list(where))
        if random.random() < 0.5:
            where[name] = odd.value(random, False)
        else:
            del where[name]
        it.done.append("envelope")
    packed = json.dumps(envelope).encode()
    if random.random() < 0.04:
        packed = random.choice(
            (
                packed[: random.randrange(len(packed))],
                random.randbytes(random.randrange(1, 100)),
                b"[" * 20_000 + b"%d" % it.number,
                json.dumps([it.number, odd.value(random, False)]).encode(),
                packed.replace(b'"', b"'"),
                b"\xef\xbb\xbf" + packed,
                b" " * (it.number % 97),
            )
        )
        it.done.append("garbage")
    it.raw = packed
