"""Which kind of broker an app's URL names, in each form that Celery takes: one text, several in it, or a list."""

from typing import Any

_REDIS = ("redis", "rediss", "valkey", "valkeys")
_AMQP = ("amqp", "amqps", "pyamqp")


def is_redis(conf: Any) -> bool:
    """Is the broker that workers read from one of the Redis protocol?"""
    return _scheme(conf.broker_read_url or conf.broker_url) in _REDIS


def is_amqp(conf: Any) -> bool:
    """Is the broker that messages are sent to one of AMQP?"""
    return _scheme(conf.broker_write_url or conf.broker_url) in _AMQP


def _scheme(url: Any) -> str:
    """Of the first of several URLs: those of one broker, of which one is alive, have the same."""
    first = url[0] if isinstance(url, (list, tuple)) and url else url
    # Celery takes amqp:// where nothing is said.
    return str(first or "amqp").strip().partition(":")[0].partition("+")[0].lower()
