"""In the parent, on Redis-protocol brokers: a channel that may take no more is told all the same, stays connected."""

from typing import Any

from harness.worker.hearing import Hearing


def stay_connected(channel: Any, hearing: Hearing) -> None:
    """kombu takes whatever comes then for the end of the connection, and cuts it. Here it is read."""
    cycle = channel.connection.cycle
    usual = cycle.on_readable

    def on_readable(fileno: int) -> None:
        if channel._in_poll or channel.qos.can_consume() or cycle._fd_to_chan.get(fileno) != (channel, "BRPOP"):
            usual(fileno)
            return
        connection = channel.client.connection
        try:
            hearing.hear(connection)
        except channel.connection_errors:
            connection.disconnect()  # and again when it may take more, as kombu does

    cycle.on_readable = on_readable
