"""In the parent, on Redis-protocol brokers: a message leaves its list and is noted as unacknowledged in one step.

kombu pops a message (BRPOP) and writes it down in a second command: a process that is killed between the two, or to
which the server hands a message as it dies, has lost it. Here a script does both, on the server. Its note is what
kombu's would be, under a tag of this fetch's own, so that any worker of the queue can give the message back.
"""

import logging
import os
import re
from queue import Empty
from time import monotonic, time
from typing import Any
from uuid import uuid4

from kombu.transport.virtual import QoS
from kombu.utils.json import loads
from redis.exceptions import NoPermissionError, NoScriptError, ResponseError

from harness.worker.envelope import is_readable, wrapped
from harness.worker.fetch_scripts import FETCH, SHA, TAKE
from harness.worker.hearing import Hearing
from harness.worker.idle import stay_connected
from harness.worker.returned import end_of_note, note
from harness.worker.unanswered import Unanswered

log = logging.getLogger("harness")

#: What a server says that knows no scripts, or lets its user run none of them or not what this one does.
_REFUSED = re.compile(r"unknown command|ACL failure|can't run this command|no permissions")


def keep_fetched(channel: Any) -> None:
    """Have `channel` fetch like that, where its transport is Redis' and its messages are acknowledged."""
    if hasattr(channel, "_brpop_read") and channel.ack_emulation:
        Fetch(channel).begin()


class Fetch:
    """One channel's, in the place of kombu's `_brpop_start` and `_brpop_read`, which it falls back to."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.hearing = Hearing(f"{channel.global_keyprefix}{channel.unacked_key}_nothing")
        self.unanswered = Unanswered(channel)
        self._usual = channel._brpop_start, channel._brpop_read
        self._tag = ""
        self._first: tuple[Any, ...] = ()
        self._lists: list[tuple[str, str]] = []
        self._by_text = False
        self._arriving: tuple[dict[str, Any], str] | None = None

    def begin(self) -> None:
        channel, qos = self.channel, self.channel.qos
        self._serve(self.start, self.read)
        channel.Message = _tagged(channel.Message, self)
        append, disconnected = qos.append, channel._on_connection_disconnect

        def append_unless_noted(message: Any, delivery_tag: Any) -> None:
            if self._arriving is None or self._arriving[1] != delivery_tag:
                append(message, delivery_tag)
                return
            self._arriving = None
            QoS.append(qos, message, delivery_tag)

        def on_disconnect(connection: Any) -> None:
            if channel._in_poll is connection and connection.pid == os.getpid():
                self.unanswered.add(self._tag)
            disconnected(connection)

        qos.append, channel._on_connection_disconnect = append_unless_noted, on_disconnect
        stay_connected(channel, self.hearing)
        self.unanswered.ask()

    def tag_of(self, raw: Any) -> str | None:
        """That of the message which is being delivered, if `raw` is it."""
        return self._arriving[1] if self._arriving is not None and self._arriving[0] is raw else None

    def start(self, timeout: float | None = None) -> None:
        """What kombu calls, again and again, while nothing is under way: send a fetch, if it is time for one."""
        channel, connection = self.channel, self.channel.client.connection
        self.unanswered.ask_again()
        self.hearing.begin(connection, channel.active_queues)
        if not self.hearing.may_be_something():
            return
        queues = channel._queue_cycle.consume(len(channel.active_queues))
        lists = [(channel._q_for_pri(queue, step), queue) for step in channel.priority_steps for queue in queues]
        self._lists = self.hearing.worth_a_look([(f"{channel.global_keyprefix}{key}", queue) for key, queue in lists])
        if not self._lists:
            return
        self._tag, self._first = uuid4().hex, self.hearing.first()
        keys = self._keys(*(key for key, _ in self._lists))
        script = ("EVAL", FETCH) if self._by_text else ("EVALSHA", SHA)
        fetch = (*script, len(keys), *keys, self._tag, time(), *(end_of_note(queue) for _, queue in self._lists))
        channel._in_poll, channel._brpop_sent_at = connection, monotonic()
        commands = connection.pack_commands([self._first, fetch] if self._first else [fetch])
        connection.send_packed_command(commands, check_health=False)

    def read(self, **_: Any) -> bool:
        """What kombu calls when the server has said something. Raises Empty where no message was delivered."""
        channel, connection = self.channel, self.channel.client.connection
        try:
            if not channel._in_poll:
                self.hearing.hear(connection)
                raise Empty
            queue, item = self._answer(connection)
        except (Empty, ResponseError):
            raise
        except BaseException:
            # Whatever it was: an answer that is left half-read would be taken for the next one's.
            connection.disconnect()
            self.unanswered.ask()
            raise
        finally:
            channel._in_poll = None
            channel._flush_brpop_reauth()
        if channel._closing or queue not in channel.connection._callbacks:
            self.unanswered.add(self._tag)
            self.unanswered.ask()
            raise Empty
        channel._queue_cycle.rotate(queue)
        payload = loads(item.decode("utf-8"))
        self._arriving = payload, self._tag
        channel.connection._deliver(payload, queue)
        if self._arriving is not None:  # nobody will acknowledge it
            self._arriving = None
            channel.qos._remove_from_indices(self._tag).execute()
        return True

    def _answer(self, connection: Any) -> tuple[str, bytes]:
        """A message that can be read and is noted, and its queue. Raises Empty."""
        try:
            if self._first:
                self.hearing.read_first(connection)
            reply = connection.read_response()
        except NoScriptError:
            self._by_text = True
            raise Empty from None
        except ResponseError as error:
            if str(error).startswith("BUSY "):  # with somebody's script; it has not begun with this one
                self.hearing.pause()
            elif isinstance(error, NoPermissionError) or _REFUSED.search(str(error)):
                self._do_without(error)
            else:
                raise
            raise Empty from None
        self._by_text = False
        if not reply:
            self.hearing.answered(connection, None)
            raise Empty
        number, item, noted = reply
        key, queue = self._lists[number - 1]
        self.hearing.answered(connection, key)
        readable = is_readable(item)
        if not (noted and readable):
            item = self._noted(connection, key, queue, item, item if readable else wrapped(item, queue), noted)
        return queue, item

    def _noted(self, connection: Any, key: str, queue: str, found: bytes, message: bytes, popped: int) -> bytes:
        """Note `message` for what was found, which is still in its list if it was not popped. Raises Empty."""
        command: tuple[Any, ...]
        if popped:
            command = ("HSET", self._keys()[0], self._tag, note(message, queue))
        else:
            command = ("EVAL", TAKE, 3, *self._keys(key), self._tag, time(), found, note(message, queue))
        connection.send_command(*command, check_health=False)
        if not connection.read_response() and not popped:
            raise Empty
        return message

    def _keys(self, *lists: str) -> list[str]:
        channel = self.channel
        prefix = channel.global_keyprefix
        return [f"{prefix}{channel.unacked_key}", f"{prefix}{channel.unacked_index_key}", *lists]

    def _serve(self, start: Any, read: Any) -> None:
        channel = self.channel
        channel._brpop_start, channel._brpop_read, channel.handlers["BRPOP"] = start, read, read

    def _do_without(self, error: ResponseError) -> None:
        log.warning(
            "the broker does not run the script of a fetch (%s): a message is taken off its list and noted in two "
            "steps, and is lost where its worker is killed between them. Allow its user the commands: ACL SETUSER ... "
            "+eval +evalsha +rpop +rpush +hset +hdel +zadd +exists",
            error,
        )
        self._serve(*self._usual)


def _tagged(usual: Any, fetch: Fetch) -> Any:
    """A message is acknowledged by the tag under which it was noted, not by the one that its sender gave it."""

    class Message(usual):  # type: ignore[misc]
        def __init__(self, raw: Any = None, *args: Any, **kwargs: Any) -> None:
            raw = kwargs.pop("payload", raw)
            super().__init__(raw, *args, **kwargs)
            if tag := fetch.tag_of(raw):
                self.delivery_tag = tag

    return Message
