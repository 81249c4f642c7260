"""What a message whose child has died still asks for: its chain, links and errbacks must not be dropped with it."""

import json
from typing import Any

from celery import Celery

from harness import Harness
from harness.core.message import Message
from harness.worker.asked import request_of
from harness.worker.wire import Wire


def asked(body: Any, content_type: str = "application/json") -> Any:
    app = Celery("shop", broker="memory://", set_as_current=False)
    headers = {"id": "j", "task": "t"}
    message = Message(json.dumps(body).encode(), content_type, "utf-8", headers, {}, "q")
    return request_of(Wire(message, False), Harness(app, database_url="postgresql://nobody@127.0.0.1:1/x").accepts)


def test_what_comes_after_a_job_is_read() -> None:
    embed = {"callbacks": [{"task": "a"}], "errbacks": [{"task": "b"}], "chain": [{"task": "c"}], "chord": None}
    request = asked([[], {}, embed])
    assert {name: request.get(name) for name in embed} == embed
    assert asked({"id": "j", "task": "t", **embed}).chain == [{"task": "c"}]


def test_a_body_that_must_not_be_read_asks_for_nothing() -> None:
    request = asked([[], {}, {"chain": [{"task": "c"}]}], "application/x-python-serialize")
    assert (request.id, request.chain) == ("j", None)


def test_steps_that_could_never_be_sent_are_not_told_of_its_end() -> None:
    embed = {"callbacks": "t", "errbacks": [{"task": "b"}], "chain": [{"args": []}], "chord": {"task": ["t"]}}
    request = asked([[], {}, embed])
    assert (request.callbacks, request.errbacks, request.chain, request.chord) == (None, [{"task": "b"}], None, None)
