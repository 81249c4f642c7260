"""`python -m tests.worker.launch …`: `celery …`, and no search for garbage before a worker is set up.

What is imported until then stays; to look through it again and again takes a fourth of the start, of hundreds of starts.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

from celery import signals
from celery.__main__ import main


def set_up(**_: Any) -> None:
    gc.enable()


if __name__ == "__main__":
    gc.disable()
    signals.worker_init.connect(set_up)
    sys.exit(main())
