"""The options of one enqueue: what they are, and which values can be meant."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from harness.core.errors import UsageError
from harness.core.ids import uuid7
from harness.core.message import job_key
from harness.core.text import bounded, safe_repr
from harness.worker.wire import ORDERING_KEY, TENANT

_LONGEST_NAME = 1000
#: Seconds.
_LONGEST = 100 * 366 * 86_400.0


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one enqueue. Times: seconds, timedelta or an aware datetime, as each says."""

    job_id: str | None = None
    ordering_key: str | None = None
    delay: float | timedelta | None = None
    eta: datetime | None = None
    priority: int | None = None
    expires: float | timedelta | datetime | None = None
    tenant: str | None = None
    passed: Mapping[str, Any] = field(default_factory=dict)


def labels_of(options: Options) -> Iterable[tuple[str, str | None]]:
    """Headers and what the options say for them. UsageError for what is no plain text."""
    for header, name in ((TENANT, "tenant"), (ORDERING_KEY, "ordering_key")):
        value = getattr(options, name)
        if value is not None and not (
            isinstance(value, str) and value and value == bounded(value, _LONGEST_NAME) and value.isprintable()
        ):
            raise UsageError(f"{name}={value!r}: it must be a printable text of 1 to {_LONGEST_NAME} bytes.")
        yield header, value


def job_id_of(wanted: object) -> str:
    """The id; a new one for None."""
    if wanted is None:
        return uuid7()
    if not isinstance(wanted, str) or job_key(wanted, b"") != wanted:
        raise UsageError(f"job_id={wanted!r}: it must be a printable text of 1 to 255 characters.")
    return wanted


def priority_of(wanted: object) -> int | None:
    """The priority, as it was given."""
    if wanted is not None and not (type(wanted) is int and 0 <= wanted <= 255):
        raise UsageError(f"priority={wanted!r}: it must be a whole number from 0 to 255, as the broker takes it.")
    return wanted


def when_of(options: Options) -> tuple[float, datetime | None]:
    """Seconds from now, and the time, of which one at most is given."""
    if options.delay is not None and options.eta is not None:
        raise UsageError("delay= and eta= were both given. Give one: seconds from now, or a time.")
    if options.eta is not None:
        return 0.0, _aware("eta", options.eta)
    return (0.0, None) if options.delay is None else (_seconds("delay", options.delay), None)


def expires_of(wanted: Any, default: Any) -> datetime | None:
    """As Celery counts: seconds from now, or a time. The database's clock says later whether it has passed."""
    wanted = default if wanted is None else wanted
    if wanted is None:
        return None
    if isinstance(wanted, datetime):
        return _aware("expires", wanted)
    return datetime.now(UTC) + timedelta(seconds=_seconds("expires", wanted))


def _seconds(name: str, value: Any) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    # A whole number may be too large for a float, which `isfinite` would need.
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or (isinstance(seconds, float) and not isfinite(seconds)) or seconds < 0:
        raise UsageError(f"{name}={safe_repr(value)}: it must be a number of seconds, 0 or more, or such a timedelta.")
    if seconds > _LONGEST:
        raise UsageError(f"{name}={safe_repr(value)}: no job waits for more than a hundred years.")
    return float(seconds)


def _aware(name: str, value: object) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise UsageError(f"{name}={value!r}: it must be a datetime with a time zone, for clocks in two places differ.")
    return value
