"""The broker's kind, whatever form its URL has: what hangs on it must hold with a list of fail-over URLs, too."""

from typing import Any

import pytest
from celery import Celery

from harness import Harness
from harness.worker.steps import _confirm
from harness.worker.transport import is_amqp, is_redis

AMQP = "amqp://guest@127.0.0.1:1//"
REDIS = "redis://127.0.0.1:1/0"


def forms(url: str) -> list[Any]:
    return [url, [url, url], (url,), f"{url};{url}", [f"{url};{url}"], url.replace("://", "s://", 1)]


def app_with(url: Any) -> Celery:
    app = Celery("forms", broker=url, set_as_current=False)
    Harness(app, database_url="postgresql://nobody@127.0.0.1:1/nothing")
    return app


@pytest.mark.parametrize("url", [*forms(AMQP), f"py{AMQP}"])
def test_amqp_is_published_to_with_confirms(url: Any) -> None:
    app = app_with(url)
    assert is_amqp(app.conf)
    assert not is_redis(app.conf)
    _confirm(app)
    assert app.conf.broker_transport_options == {"confirm_publish": True}


@pytest.mark.parametrize("url", forms(REDIS))
def test_redis_is_asked_for_what_was_not_acknowledged(url: Any) -> None:
    app = app_with(url)
    assert is_redis(app.conf)
    assert not is_amqp(app.conf)
    assert app.conf.broker_transport_options["unacked_restore_interval"] == 5


def test_where_messages_are_read_and_sent_may_differ() -> None:
    app = app_with(AMQP)
    app.conf.update(broker_read_url=[REDIS], broker_write_url=[AMQP])
    assert is_redis(app.conf)
    assert is_amqp(app.conf)


def test_no_url_at_all_is_celerys_own_default() -> None:
    app = Celery("none", set_as_current=False)
    assert is_amqp(app.conf)
    assert app.connection_for_write().transport_cls == "amqp"
