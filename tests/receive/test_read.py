"""How a message is read: paths, functions, CloudEvents; and what is told when a source is declared."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import pytest
from celery import Celery
from kombu import Queue
from sqlalchemy.orm import Session

from harness import CloudEvents, Delivered, Fields, Harness, Incoming, Unfit, Unreadable
from harness.core.errors import ConfigError, UsageError
from harness.worker.chosen import chosen

EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


def delivered(body: Any = b"{}", **more: Any) -> Delivered:
    return Delivered(body=body if isinstance(body, bytes) else json.dumps(body).encode(), **more)


def test_the_usual_fields() -> None:
    at = datetime(2026, 1, 2, 3, tzinfo=UTC)
    read = Fields()(delivered({"a": 1}, properties={"message_id": "m", "correlation_id": "c", "timestamp": at}))
    assert read == Incoming(id="m", arguments={"a": 1}, correlation_id="c", sent_at=at)
    assert Fields()(delivered({}, properties={"timestamp": 0})).sent_at == datetime(1970, 1, 1, tzinfo=UTC)
    assert Fields()(delivered(b'{ "a": 1}')).id == "sha256:" + sha256(b'{ "a": 1}').hexdigest()
    assert Fields()(delivered({}, properties={"message_id": "x" * 300})).id.startswith("sha256:")
    with pytest.raises(Unfit, match="no id"):
        Fields(without_id="refuse")(delivered({}))


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("headers.X-Id", "h"),
        ("headers.x-id", "h"),
        ("properties.type", "p"),
        ("body.a.b.1", "two"),
        ("routing_key", "r.k"),
        (lambda message: message.header("X-ID") + "!", "h!"),
    ],
)
def test_where_something_stands(where: Any, found: str) -> None:
    message = delivered(
        {"a": {"b": ["one", "two"]}}, headers={"X-Id": "h"}, properties={"type": "p"}, routing_key="r.k"
    )
    read = Fields(id=where, tenant=where, ordering_key=where, correlation_id=where, arguments={"x": where})(message)
    assert read == Incoming(id=found, tenant=found, ordering_key=found, correlation_id=found, arguments={"x": found})


def test_what_is_not_there_and_what_is_no_text() -> None:
    fields = Fields(id="body.id", tenant="body.a.9.b", arguments={"x": "body.x", "raw": "bytes", "text": "text"})
    body = b'{"id": 7}'
    assert fields(delivered(body)) == Incoming(id="7", arguments={"raw": body, "text": body.decode()})
    for wrong in ({"id": True}, {"id": [1]}, {"id": 1.5}, {"id": {"a": 1}}):
        with pytest.raises(Unfit, match="id is neither"):
            fields(delivered(wrong))
    for wrong in ("a\nb", "x" * 1001, {"a": 1}):
        with pytest.raises(Unfit, match="tenant"):
            Fields(tenant="body.t")(delivered({"t": wrong}))
    with pytest.raises(Unfit, match="no object but list"):
        Fields()(delivered([1]))
    for body in (b"", b"\xff", b"[" * 100_000):
        with pytest.raises(Unreadable):
            Fields()(delivered(body))


@pytest.mark.parametrize("data", [{"n": 1}, [1], "text", 7, None])
def test_structured_events(data: Any) -> None:
    reader = CloudEvents(arguments={"data": "data", "subject": "attributes.subject"})
    event = EVENT | {"data": data, "subject": "s", "partitionkey": "k", "correlationid": "c"}
    read = reader(delivered(event, content_type="application/cloudevents+json"))
    arguments = {"data": data, "subject": "s"} if data is not None else {"subject": "s"}
    assert read == Incoming(id="/s|1", ordering_key="k", correlation_id="c", arguments=arguments)
    assert reader(delivered(event, content_type="application/json")) == read  # by what it says of itself


def test_data_as_base64() -> None:
    def read(raw: bytes, kind: str | None) -> Any:
        event = EVENT | {"data_base64": base64.b64encode(raw).decode()} | ({"datacontenttype": kind} if kind else {})
        return CloudEvents(arguments={"data": "data"})(delivered(event)).arguments.get("data")

    assert read(b'{"a": 1}', "application/json") == {"a": 1}
    assert read(b'{"a": 1}', "application/vnd.x+json; charset=utf-8") == {"a": 1}
    assert read(b"\x00\xff", "image/png") == b"\x00\xff"
    assert read(b"\x00\xff", None) == b"\x00\xff"
    with pytest.raises(Unreadable, match="no JSON"):
        read(b"\x00\xff", "application/json")


@pytest.mark.parametrize("prefix", ["cloudEvents:", "cloudEvents_", "ce-", "ce_", "CE-"])
def test_binary_events(prefix: str) -> None:
    headers = {f"{prefix}{name}": value for name, value in EVENT.items()} | {"other": 1}
    reader = CloudEvents(arguments={"data": "data"})
    assert reader(delivered({"a": 1}, headers=headers, content_type="application/json")).arguments == {"data": {"a": 1}}
    assert reader(delivered(b"hi", headers=headers, content_type="text/plain")).arguments == {"data": "hi"}
    assert reader(delivered(b"\xff", headers=headers, content_type="image/png")).arguments == {"data": b"\xff"}
    assert reader(delivered(b"", headers=headers)).arguments == {}
    with pytest.raises(Unreadable):
        reader(delivered(b"x", headers=headers, content_type="application/json"))


@pytest.mark.parametrize("name", ["id", "source", "specversion", "type"])
@pytest.mark.parametrize("value", [None, "", 7])
def test_events_that_lack_something(name: str, value: Any) -> None:
    with pytest.raises(Unfit):
        CloudEvents()(delivered(EVENT | {name: value, "data": {}}))


def test_ids_of_two_sources_stay_apart() -> None:
    one = CloudEvents()(delivered(EVENT | {"source": "a|b", "id": "c", "data": {}}))
    other = CloudEvents()(delivered(EVENT | {"source": "a", "id": "b|c", "data": {}}))
    assert (one.id, other.id) == ("a%7Cb|c", "a|b|c")


@pytest.fixture
def harness() -> Harness:
    app = Celery("told", broker="memory://", set_as_current=False)
    made = Harness(app, service="told", database_url="postgresql://u@127.0.0.1:1/none")

    @made.job(name="told", shared=False)
    def told(session: Session, item: str, count: int = 1) -> None: ...

    made.told = told  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "a b"}, "a name has"),
        ({"queue": ""}, "name of a queue"),
        ({"queue": 7}, "name of a queue"),
        ({"queue": Queue("")}, "has no name"),
        ({"queue": Queue("x"), "routing_keys": ["a"]}, "leave these out"),
        ({"routing_keys": ["a"]}, "without exchange="),
        ({"exchange": "e", "routing_keys": "a"}, r"It is a list: \['a'\]"),
        ({"exchange": "e"}, "needs routing_keys="),
        ({"exchange": "e", "exchange_type": "topics"}, "Known: direct"),
        ({"read": 7}, "Pass Fields"),
        ({"read": Fields}, "Pass Fields"),
        ({"read": lambda m: Incoming(id="1"), "job": print}, "is no job of this app"),
        ({"read": "CloudEvents"}, "Pass Fields"),
    ],
)
def test_a_source_that_cannot_be(harness: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        harness.source(**({"name": "s", "job": harness.told, "queue": "q"} | options))
    assert harness.sources == {}


def test_paths_and_arguments_that_cannot_be(harness: Any) -> None:
    for wrong in ("header.x", "", "headers", "headers.", 7, "attributes.id"):
        with pytest.raises(UsageError, match="write a path"):
            Fields(id=wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="without_id"):
        Fields(without_id="no")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cannot be the name"):
        Fields(arguments={"a b": "body"})
    with pytest.raises(UsageError, match="no parameter 'itm'"):
        harness.source("s", job=harness.told, queue="q", read=Fields(arguments={"itm": "body"}))
    with pytest.raises(UsageError, match="where 'item' of told stands"):
        harness.source("s", job=harness.told, queue="q", read=CloudEvents(arguments={"count": "data"}))


def test_sources_that_stand_in_each_others_way(harness: Any) -> None:
    harness.source("s", job=harness.told, queue="q")
    with pytest.raises(UsageError, match="a source 's' already"):
        harness.source("s", job=harness.told, queue="other")
    with pytest.raises(UsageError, match="read by the source 's' already"):
        harness.source("t", job=harness.told, queue="q")
    with pytest.raises(ConfigError, match=r"no source 'x'. Its sources: s"):
        chosen(harness, ["x"])
    assert [source.name for source in chosen(harness)] == ["s"]
    harness.source("celery", job=harness.told, queue="celery")
    with pytest.raises(ConfigError, match="the workers read as well"):
        chosen(harness)
