"""`python -m harness.testing.launch -A app worker …`: Celery's command, with what a test wants of the process.

By the environment: HARNESS_TEST_READY names a file that is made when the worker consumes; HARNESS_TEST_PATH is the
sys.path of the test, as JSON; HARNESS_TEST_LONGEST_WAIT is the longest delay of a retry in seconds;
HARNESS_TEST_SETTINGS are settings of the app, as JSON; for HARNESS_FAIL_POINTS see `failpoints`.
"""

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

READY, PATH = "HARNESS_TEST_READY", "HARNESS_TEST_PATH"
LONGEST_WAIT, SETTINGS = "HARNESS_TEST_LONGEST_WAIT", "HARNESS_TEST_SETTINGS"


def main() -> Any:
    """Prepare this process and hand over to Celery's command line."""
    sys.path[:] = list(dict.fromkeys([*json.loads(os.environ.pop(PATH, "[]")), *sys.path]))
    from celery import signals
    from celery.bin.celery import main as celery

    from harness.testing import failpoints

    failpoints.install()
    if longest := os.environ.get(LONGEST_WAIT):
        _shorten_waits(float(longest))

    @signals.worker_ready.connect(weak=False)  # type: ignore[untyped-decorator]
    def ready(**_: Any) -> None:
        Path(os.environ[READY]).touch()

    settings = json.loads(os.environ.get(SETTINGS, "{}"))
    # By the option: Celery's own object, so that what the app's module sets later is overruled as well.
    _set(sys.argv[sys.argv.index("-A") + 1], settings)
    sys.argv[0] = "celery"
    return celery()


def _set(app_name: str, settings: dict[str, Any]) -> None:
    from celery.app.utils import find_app

    find_app(app_name).conf.update(settings)


def _shorten_waits(longest: float) -> None:
    from harness.core.policy import Retry

    verdict: Any = import_module("harness.process.verdict")
    decide = verdict.decide

    def decide_soon(*args: Any, **kwargs: Any) -> Any:
        decision = decide(*args, **kwargs)
        if isinstance(decision, Retry):
            return Retry(min(decision.delay, longest), decision.spends_try)
        return decision

    verdict.decide = decide_soon


if __name__ == "__main__":
    main()
