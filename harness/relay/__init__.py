"""The relay: moves due rows of the inbox to the broker. The only publisher of retries, replays and enqueues."""

from harness.relay.relay import Publish, Relay, Sent, Unroutable
from harness.relay.sign import SignOfLife

__all__ = ["Publish", "Relay", "Sent", "SignOfLife", "Unroutable"]
