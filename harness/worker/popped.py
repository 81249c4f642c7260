"""In the parent, on Redis-protocol brokers: a message that was taken off its list and can't be noted as unacknowledged.

kombu pops a message, then writes it down as unacknowledged in a second command. Where that is refused (memory is full,
the server has become a replica) or its connection breaks, the message is in this process alone, and kombu drops it.
"""

import contextlib
import logging
from typing import Any

from kombu.transport.virtual import QoS
from kombu.utils.json import dumps

log = logging.getLogger("harness")


def keep_popped(channel: Any) -> None:
    """Put such a message back or, where the server refuses that, too, have it worked on all the same."""
    if not hasattr(channel, "_brpop_read"):
        return
    qos = channel.qos
    usual = qos.append

    def append(message: Any, delivery_tag: Any) -> None:
        try:
            usual(message, delivery_tag)
            return
        except Exception as error:
            failed = error
        if _put_back(channel, message):
            raise failed
        log.error(
            "the broker took no note of message %s (%r), nor takes it back: it is worked on here, and is lost if this "
            "worker dies before it ends",
            delivery_tag,
            failed,
        )
        QoS.append(qos, message, delivery_tag)

    qos.append = append
    _close_with_its_transport(channel)


def _close_with_its_transport(channel: Any) -> None:
    """Have the transport know the channel until it is closed.

    A consumer that is cancelled leaves its last BRPOP waiting at the server. kombu reads the reply when it closes the
    channel, and would give a message in it back through one of the transport's channels, of which this one is no more.
    """
    usual = channel.close

    def close() -> None:
        transport = channel.connection
        # Where an earlier close has failed half-way, the next one does nothing: the transport, which closes whatever it
        # knows of, would come back to it for ever.
        if not channel.closed and transport is not None and channel not in transport.channels:
            transport.channels.append(channel)
        usual()

    channel.close = close


def _put_back(channel: Any, message: Any) -> bool:
    """To the end that is popped next; over another connection where the last one is broken."""
    delivery = message.delivery_info
    with contextlib.suppress(Exception):
        payload = message.serializable()
        lists = [
            channel._q_for_pri(queue, channel._get_message_priority(payload, reverse=False))
            for queue in channel._lookup(delivery["exchange"], delivery["routing_key"])
        ]
        with channel.conn_or_acquire() as client:
            for one in lists:
                client.rpush(one, dumps(payload))
        return bool(lists)
    return False
