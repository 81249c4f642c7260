"""In the parent, on Redis-protocol brokers: an acknowledgement that a server takes whose memory is full.

kombu sends it as a transaction. Redis 7.0 then refuses whatever is in one, so that nothing would ever be removed.
"""

from typing import Any


def keep_acked(channel: Any) -> None:
    """Have `channel` remove its notes by plain commands, in one round trip."""
    if not hasattr(channel, "_brpop_read") or not channel.ack_emulation:
        return
    qos = channel.qos
    usual = qos._remove_from_indices

    def remove_from_indices(delivery_tag: Any, pipe: Any = None) -> Any:
        if pipe is not None:
            return usual(delivery_tag, pipe)
        with channel.conn_or_acquire() as client:
            # The note first: what the index names and is not there, is removed by whoever would give it back.
            own = client.pipeline(transaction=False)
            return own.hdel(channel.unacked_key, delivery_tag).zrem(channel.unacked_index_key, delivery_tag)

    qos._remove_from_indices = remove_from_indices
