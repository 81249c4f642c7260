"""May the workers' user do on a Redis-protocol server what a worker does there? Tried, on keys that are left empty."""

from collections.abc import Iterable
from typing import Any

from celery import Celery
from kombu import Connection

#: Each undoes itself, and what undoes comes first: KEYS are a list, a hash, a sorted set, a set and a string.
_TRY = """
local tries = {
  {'RPOP', 1}, {'RPUSH', 1, 'x'}, {'RPOP', 1}, {'LPUSH', 1, 'x'}, {'RPOP', 1}, {'LLEN', 1},
  {'HDEL', 2, 'x'}, {'HSET', 2, 'x', 'x'}, {'HGET', 2, 'x'}, {'HDEL', 2, 'x'}, {'EXISTS', 2},
  {'ZREM', 3, 'x'}, {'ZADD', 3, 1, 'x'}, {'ZRANGE', 3, 0, 1}, {'ZREM', 3, 'x'},
  {'SREM', 4, 'x'}, {'SADD', 4, 'x'}, {'SMEMBERS', 4}, {'SREM', 4, 'x'},
  {'DEL', 5}, {'SET', 5, 'x', 'NX', 'PX', 1000}, {'GET', 5}, {'DEL', 5}
}
local now = redis.pcall('TIME')
if now.err then return now end
for _, one in ipairs(tries) do
  local said = redis.pcall(one[1], KEYS[one[2]], unpack(one, 3))
  if type(said) == 'table' and said.err then return said end
end
return redis.status_reply('OK')
"""


def missing(connection: Connection, app: Celery) -> str:
    """What the server says of the first thing that it does not allow; empty where all is allowed."""
    channel = connection.default_channel
    client, prefix = channel.client, channel.global_keyprefix
    scratch = [f"{prefix}{channel.unacked_key}_try:{number}" for number in range(5)]
    own = [f"{prefix}{key}" for key in _keys(channel, app)]
    return (
        _refused(client, "EVAL", "return 1", 0)
        or _refused(client, "EVAL", "return 1", len(own), *own, names=own)
        or _refused(client, "EVAL", _TRY, 5, *scratch, only_commands=True)
        or _refused(client, "PUBLISH", f"{channel.keyprefix_fanout.format(db=0)}harness-try", "")
    )


def _keys(channel: Any, app: Celery) -> Iterable[str]:
    yield from (channel.unacked_key, channel.unacked_index_key, channel.unacked_mutex_key)
    control = "celery@host.celery.pidbox"  # where remote control reaches a worker
    for name in (control, *app.amqp.queues.consume_from):
        for step in channel.priority_steps:
            yield channel._q_for_pri(name, step)
    for queue in app.amqp.queues.consume_from.values():
        if queue.exchange is not None and queue.exchange.name:
            yield channel.keyprefix_queue % queue.exchange.name


def _refused(client: Any, *command: Any, names: Iterable[str] = (), only_commands: bool = False) -> str:
    from redis.exceptions import ResponseError

    try:
        client.execute_command(*command)
        return ""
    except ResponseError as error:
        said = str(error)
    if not any(word in said.lower() for word in ("permission", "acl failure", "unknown command")):
        return ""
    if only_commands and " key" in said:
        return ""  # these keys are the check's own
    return f"{said[:200]}; it needs {', '.join(map(repr, names))}" if names else said[:200]
