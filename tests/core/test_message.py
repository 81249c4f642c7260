"""Keys, digests and views of messages, whatever foreign producers put into them."""

import base64
import hashlib
import json
import subprocess
import sys
import zlib
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core import message
from harness.core.message import Message, digest, job_key, jsonable
from harness.core.message_view import view_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
ANYTHING = st.recursive(
    st.none()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
    | st.datetimes()
    | st.decimals()
    | st.uuids()
    | st.complex_numbers(),
    lambda inner: st.one_of(
        st.lists(inner),
        st.tuples(inner),
        st.sets(st.integers()),
        st.dictionaries(st.text() | st.integers(), inner),
    ),
    max_leaves=20,
)


class Hostile:
    def __repr__(self) -> str:
        raise SystemExit

    __str__ = __repr__


class HostileDict(dict[str, Any]):
    def items(self) -> Any:
        raise LookupError


def sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def test_a_message_is_a_value() -> None:
    one, other = (Message(b"x", "application/json", "utf-8", {"id": "1"}, {}, "celery") for _ in range(2))
    assert one == other


@pytest.mark.parametrize("key", ["order-4711", "x" * 255, "ü €", "sha256:ab", "with space"])
def test_a_printable_id_is_its_own_key(key: str) -> None:
    assert job_key(key, b"body") == key


@pytest.mark.parametrize("key", ["x" * 256, "a\0b", "a\nb", "\ud800", "\x85"])
def test_any_other_text_is_hashed(key: str) -> None:
    assert job_key(key, b"body") == sha256(key.encode("utf-8", "surrogatepass"))


def test_a_missing_id_is_the_hash_of_the_body() -> None:
    assert job_key(None, b"body") == job_key("", b"body") == sha256(b"body")


def test_ids_that_are_no_text() -> None:
    assert job_key(5, b"body") == sha256(b"5")
    assert job_key(b"\xff", b"body") == sha256(b"\xff")
    assert job_key(0, b"body") == sha256(b"0")
    assert job_key(Hostile(), b"body").startswith("sha256:")


@given(ANYTHING, st.binary())
def test_every_id_has_a_key_that_can_be_stored(raw_id: object, body: bytes) -> None:
    key = job_key(raw_id, body)
    assert key == job_key(raw_id, body)
    assert key.isprintable()
    assert 1 <= len(key) <= 255


@given(JSON, st.dictionaries(st.text(), JSON))
def test_the_digest_survives_the_transport(args: object, kwargs: dict[str, object]) -> None:
    travelled = json.loads(json.dumps([[args], kwargs]))
    assert digest((args,), kwargs) == digest(*travelled)
    assert len(digest((args,), kwargs)) == 32


def test_the_digest_is_that_of_canonical_json() -> None:
    args, kwargs = (1, ["é", None, True, 1.5]), {"b": {}, "a": [(), {"y": 1, "x": 2}]}
    canonical = json.dumps([args, kwargs], sort_keys=True, separators=(",", ":")).encode()
    assert digest(args, kwargs) == hashlib.sha256(canonical).digest()


def test_the_digest_tells_contents_apart() -> None:
    contents: list[tuple[object, object]] = [
        ((), {}), ((1,), {}), (("1",), {}), ((1.0,), {}), ((True,), {}), ((None,), {}), (([],), {}),
        (({},), {}), ((), {"a": 1}), ((), {"a": 2}), ((1, 2), {}), ((2, 1), {}),
        ((["1,2"],), {}), (([1, 2],), {}), ((date(2024, 1, 1),), {}), ((date(2024, 1, 2),), {}),
        ((b"1",), {}), ((10**5000,), {}), ((10**5000 + 1,), {}),
    ]  # fmt: skip
    assert len({digest(*content) for content in contents}) == len(contents)


def test_the_digest_is_the_same_in_every_process() -> None:
    code = "from harness.core.message import digest; print(digest([{'a', 'b', 'c', 'd'}], {}).hex())"
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(runs) == 1


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def test_the_digest_of_the_deep_and_the_circular() -> None:
    assert digest(deep(20_000), {}) != digest(deep(20_001), {})
    circle: list[Any] = [1]
    circle.append(circle)
    assert digest(circle, {}) == digest(circle, {})
    shared = [1]
    assert digest([shared, shared], {}) == digest([[1], [1]], {})


@given(ANYTHING)
def test_the_digest_never_raises(value: object) -> None:
    assert len(digest([value], {"k": value})) == 32
    assert len(digest([value, Hostile(), HostileDict(a=1)], value)) == 32


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@given(ANYTHING)
def test_a_view_is_always_json_that_postgresql_takes(value: object) -> None:
    text = json.dumps(jsonable([value, Hostile(), HostileDict(a=1)]), ensure_ascii=False)
    text.encode("utf-8")
    assert "\\u0000" not in text
    json.loads(text, parse_constant=refuse_constant)


@pytest.mark.parametrize(
    ("value", "view"),
    [
        (None, None),
        (True, True),
        (2**53 - 1, 2**53 - 1),
        (2**53, "9007199254740992"),
        (-(2**60), "-1152921504606846976"),
        (1.5, 1.5),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        ("a\0b\ud800", "a\ufffdb\ufffd"),
        (b"\xff", "base64:" + base64.b64encode(b"\xff").decode()),
        ((1, [2]), [1, [2]]),
        ({1: "a", "b": {"c": 2}}, {"1": "a", "b": {"c": 2}}),
        (frozenset({3}), [3]),
        (datetime(2024, 1, 2, 3, tzinfo=UTC), "2024-01-02T03:00:00+00:00"),
        (Decimal("1.10"), "1.10"),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    ],
)
def test_views(value: object, view: object) -> None:
    assert jsonable(value) == view


def test_a_view_is_bounded() -> None:
    assert len(json.dumps(jsonable("x" * 10_000, limit=100))) < 130
    assert len(json.dumps(jsonable(["x"] * 10_000, limit=100))) < 400
    assert len(json.dumps(jsonable({str(n): n for n in range(10_000)}, limit=100))) < 400
    assert len(json.dumps(jsonable(b"x" * 10_000, limit=100))) < 130
    assert len(json.dumps(jsonable(list(range(10**6))))) < 1_000_000
    assert "…" in json.dumps(jsonable(deep(10_000)), ensure_ascii=False)
    bush: list[Any] = []
    bush.extend([bush, bush])
    assert len(json.dumps(jsonable(bush))) < 1_000_000
    assert jsonable(10**6000).startswith("0x")


LONG = st.sampled_from([100, 3100, 4500]).map(lambda digits: 10**digits)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | LONG,
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner),
    max_leaves=12,
)


@given(JSON_VALUES, st.dictionaries(st.text(), JSON_VALUES))
def test_the_fast_way_to_a_digest_leads_to_the_same_one(value: object, kwargs: dict[str, object]) -> None:
    slow = hashlib.sha256("".join(message._canonical([[value], kwargs])).encode()).digest()
    assert digest([value], kwargs) == slow


PLAIN: dict[str, Any] = {"id": "a", "task": "t"}


@pytest.mark.parametrize(
    ("body", "headers", "encoding", "view"),
    [
        (b'[[1], {"a": 2}, {"callbacks": null}]', PLAIN, "utf-8", {"args": [1], "kwargs": {"a": 2}}),
        (b'{"task": "t", "id": "a", "args": [1], "kwargs": {}}', {}, "utf-8", {"args": [1], "kwargs": {}}),
        (b'{"task": "t", "id": "a", "kwargs": null, "args": [1]}', {}, None, {"args": [1], "kwargs": {}}),
        (b'[[], {"a": NaN, "b": "\\u0000"}, {}]', PLAIN, "utf-8", {"args": [], "kwargs": {"a": "NaN", "b": "\ufffd"}}),
        (b'{"order": 7}', {}, "utf-8", {"body": {"order": 7}}),
        (b"[1, 2]", {}, "binary", {"body": [1, 2]}),
        ('[["\u00e9"], {}, {}]'.encode("latin-1"), PLAIN, "latin-1", {"args": ["\u00e9"], "kwargs": {}}),
        (b"[[1], {}, {}]", PLAIN, "no-such-encoding", {"args": [1], "kwargs": {}}),
        (b"plain words", {}, "utf-8", {"body": "plain words"}),
        (b"\xff\x00", {}, "binary", {"body": "base64:/wA="}),
        (b"[" * 50_000, {}, "utf-8", {"body": "[" * 50_000}),
        (zlib.compress(b"[[1], {}, {}]"), {"compression": "application/x-gzip"}, "utf-8", {"args": [1], "kwargs": {}}),
    ],
)
def test_the_view_of_a_message(body: bytes, headers: dict[str, Any], encoding: str | None, view: Any) -> None:
    made = view_of(Message(body, "application/json", encoding, headers, {}, "q"))
    assert made == view
    json.dumps(made, allow_nan=False)


def test_the_view_of_a_bomb_is_small() -> None:
    bomb = zlib.compress(b"[" + b"1," * 20_000_000 + b"1]")
    made = view_of(Message(bomb, "application/json", "utf-8", {"compression": "application/x-gzip"}, {}, "q"))
    assert made["body"].startswith("base64:")
    assert len(made["body"]) < 100_010
