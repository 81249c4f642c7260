"""A worker whose clock is wrong: every time that its Python code asks for is off by so many seconds."""

from __future__ import annotations

import datetime as module
import sys
import time


def put_off_by(seconds: float) -> None:
    """From now on, in this process and those that it forks, for what is imported already."""
    right, usual = time.time, module.datetime

    class Wrong(usual):
        @classmethod
        def now(cls, tz: module.tzinfo | None = None) -> module.datetime:
            return usual.fromtimestamp(right() + seconds, tz)

        @classmethod
        def utcnow(cls) -> module.datetime:
            return usual.fromtimestamp(right() + seconds, module.UTC).replace(tzinfo=None)

    for name, loaded in list(sys.modules.items()):
        if name.startswith(("harness.", "celery.")) and getattr(loaded, "datetime", None) is usual:
            loaded.datetime = Wrong  # type: ignore[attr-defined]
