"""In the parent, on Redis-protocol brokers: one client per channel instead of one per command.

kombu makes a client for nearly every command, which costs more than the command: the client registers some two hundred
callbacks. It holds nothing but the channel's pool of connections, so one serves them all.
"""

from typing import Any


def keep_client(channel: Any) -> None:
    """Let `channel` use one client for as long as it has the same pool."""
    usual = getattr(channel, "_create_client", None)
    if usual is None:
        return
    kept: Any = None

    def create_client(asynchronous: bool = False) -> Any:
        nonlocal kept
        if asynchronous:
            return usual(asynchronous=True)
        if kept is None or kept.connection_pool is not channel.pool:
            kept = usual()
        return kept

    channel._create_client = create_client
