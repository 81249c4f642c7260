"""Puts jobs into the inbox in the caller's own transaction: no commit without them, none of them without the commit."""

from harness.enqueue.put import Enqueued, EnqueueState, Read, put

__all__ = ["EnqueueState", "Enqueued", "Read", "put"]
