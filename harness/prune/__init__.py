"""Deletes fences and letters that nothing can need any more."""

from harness.prune.prune import prune

__all__ = ["prune"]
