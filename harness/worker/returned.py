"""In the parent, on Redis-protocol brokers: a message that was noted as unacknowledged goes back into its list.

kombu does so for what a dead worker held. It ends the worker over a note that it can't read, and drops a message in
which it can't write that it is given again, or for whose exchange it finds no queue any more.
"""

import json
import logging
from contextlib import suppress
from functools import lru_cache
from typing import Any

from kombu.utils.json import dumps
from redis.exceptions import RedisError

from harness.worker.envelope import is_readable, wrapped

log = logging.getLogger("harness")


@lru_cache(maxsize=100_000)
def end_of_note(queue: str) -> str:
    """A note is `[message, exchange, routing key]` in JSON; the default exchange leads to the queue itself."""
    return f', "", {json.dumps(queue)}]'


def note(message: bytes, queue: str) -> bytes:
    """What stands in the hash of unacknowledged messages."""
    return b"[" + message + end_of_note(queue).encode()


def keep_returned(channel: Any) -> None:
    """Have nothing dropped by `channel` that it gives back."""
    if not hasattr(channel, "_brpop_read") or not channel.ack_emulation:
        return
    usual = channel.qos.restore_by_tag

    def restore_by_tag(tag: Any, client: Any = None, leftmost: bool = False) -> None:
        try:
            usual(tag, client, leftmost)
        except (RedisError, OSError):
            raise
        except Exception as error:  # reading a note may raise what any of kombu's own types does
            with channel.conn_or_acquire(client) as own:
                _restore_anyway(channel, own, tag, error)

    def do_restore(payload: Any, exchange: str, routing_key: str, pipe: Any, leftmost: bool = False) -> None:
        queues = channel._lookup(exchange, routing_key)
        if not queues:
            raise LookupError(f"no queue is bound to exchange {exchange!r} by {routing_key!r} any more")
        for place in (payload.get("headers"), payload["properties"].get("delivery_info")):
            if isinstance(place, dict):
                place["redelivered"] = True
        for queue in queues:
            key = channel._q_for_pri(queue, channel._get_message_priority(payload, reverse=False))
            (pipe.lpush if leftmost else pipe.rpush)(key, dumps(payload))

    channel.qos.restore_by_tag = restore_by_tag
    channel._do_restore_message = do_restore


def _restore_anyway(channel: Any, client: Any, tag: Any, error: Exception) -> None:
    """A note that kombu can't give back: as what was found, or it stays."""
    held = client.hget(channel.unacked_key, tag)
    if held is None:
        return
    data = held if isinstance(held, bytes) else held.encode("utf-8", "surrogatepass")
    found = _of_a_fetch(data)
    if found is None:
        log.error("the broker holds an unacknowledged message that can't be given back, and stays (%s): %r", tag, error)
        return
    item, queue = found
    with client.pipeline(transaction=True) as pipe:
        pipe.zrem(channel.unacked_index_key, tag)
        pipe.hdel(channel.unacked_key, tag)
        pipe.rpush(queue, item if is_readable(item) else wrapped(item, queue))
        pipe.execute()


def _of_a_fetch(held: bytes) -> tuple[bytes, str] | None:
    """What was in the list, and the list's queue; None for a note that no fetch has made."""
    begin = b', "", '
    at = held.rfind(begin)
    with suppress(ValueError):
        queue = json.loads(held[at + len(begin) : -1])
        if at > 0 and held.startswith(b"[") and isinstance(queue, str) and held == note(held[1:at], queue):
            return held[1:at], queue
    return None
