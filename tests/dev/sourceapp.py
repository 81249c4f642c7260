"""An app with a source, for the test of ``harness dev``: ``-A tests.dev.sourceapp``."""

from tests.dev.devapp import app, book, harness

__all__ = ["app"]

harness.source("letters", job=book, queue="letters")
