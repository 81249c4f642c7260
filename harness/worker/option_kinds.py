"""The values of a job's options: one of a wrong kind is refused at import, not met by the first message."""

import inspect
import math
from collections.abc import Callable
from typing import Any

from harness.core.errors import UsageError
from harness.core.policy import Policy
from harness.core.text import bounded

_LONGEST_NAME = 255


def check(job: Any) -> None:
    """Raise UsageError for a value that can't be meant. `job`: the class of a job."""
    for name, (fits, expected) in _KINDS.items():
        value = inspect.getattr_static(job, name, None)
        value = value.__func__ if isinstance(value, staticmethod) else value
        if not fits(value):
            raise UsageError(f"{job.name}: {name}={value!r}: it is {expected}.")


def _is_name(value: object) -> bool:
    return value is None or (
        isinstance(value, str) and bool(value) and value.isprintable() and value == bounded(value, _LONGEST_NAME)
    )


def _are_errors(value: Any) -> bool:
    several = value if isinstance(value, (tuple, list, set, frozenset)) else (value,)
    return all(issubclass(one, BaseException) if isinstance(one, type) else callable(one) for one in several)


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf


def _is_limit(value: object) -> bool:
    # 0 is none, as for Celery.
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0)


_ERRORS = "exception types, and functions that are asked about an exception; one, or a tuple of them"
_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "consumer": (_is_name, f"a printable text of 1 to {_LONGEST_NAME} bytes, or None for the task's name"),
    "policy": (
        lambda value: value is None or isinstance(value, Policy),
        "a harness.Policy or None. To name the policy of a queue is for the setting harness_policies",
    ),
    "permanent": (_are_errors, _ERRORS),
    "unknown": (_are_errors, _ERRORS),
    "can_replay": (
        lambda value: value is None or (callable(value) and not isinstance(value, type)),
        "a function of (session, arguments), or None",
    ),
    "max_replays": (lambda value: type(value) is int and value >= 0, "a whole number, 0 or more"),
    "max_age": (_is_time, "a positive number of seconds"),
    "time_limit": (_is_limit, "a number of seconds, or None"),
    "soft_time_limit": (_is_limit, "a number of seconds, or None"),
}
