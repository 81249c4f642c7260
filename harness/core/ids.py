"""Time-ordered ids (UUIDv7, RFC 9562): an index grows at its end, and an id tells its age."""

import os
import threading
import time
import uuid
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COUNTER_BITS = 42
_TAIL_BITS = 32
_IDEMPOTENCY = uuid.UUID("b3b1c1f4-6d0b-5d35-9c5e-2f6f0f6f3c51")


class _Clock:
    """Milliseconds and a counter below them: never twice the same in a process, whatever the clock does."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.millisecond = 0
        self.counter = 0

    def tick(self) -> tuple[int, int]:
        with self.lock:
            now = time.time_ns() // 1_000_000
            self.counter += 1
            if now > self.millisecond or self.counter >> _COUNTER_BITS:
                self.millisecond = max(now, self.millisecond + 1)
                # The top bit starts at 0, which leaves the counter room for 2^41 ids in one millisecond.
                self.counter = int.from_bytes(os.urandom(6)) >> (48 - _COUNTER_BITS + 1)
            return self.millisecond, self.counter


_clock = _Clock()


def _after_fork() -> None:
    """A child must not go on from its parent's counter, nor wait for a lock that another thread held."""
    global _clock
    _clock = _Clock()


os.register_at_fork(after_in_child=_after_fork)


def uuid7() -> str:
    """A new UUIDv7 in its usual form of 36 characters, greater than every earlier one of this process."""
    millisecond, counter = _clock.tick()
    tail = int.from_bytes(os.urandom(_TAIL_BITS // 8))
    value = (millisecond & ((1 << 48) - 1)) << 80
    value |= 0x7 << 76 | (counter >> 30) << 64
    value |= 0b10 << 62 | (counter & ((1 << 30) - 1)) << 32 | tail
    return str(uuid.UUID(int=value))


def uuid7_time(s: str) -> datetime | None:
    """When the UUIDv7 `s` was made (UTC, to the millisecond), or None where `s` is no UUIDv7.

    Only the usual form with hyphens counts: 32 bare hexadecimal digits may well be somebody's hash.
    """
    if not isinstance(s, str) or len(s) != 36:
        return None
    try:
        value = uuid.UUID(s)
        if str(value) != s.lower() or value.version != 7:
            return None
        return _EPOCH + timedelta(milliseconds=value.int >> 80)
    except (ValueError, OverflowError):
        return None


def idempotency_key(consumer: str, job_id: str) -> str:
    """The same UUID (version 5, 36 characters) for every run of a job; another one for another consumer of its id.

    Plain ASCII whatever the id is, so that it fits into an HTTP header and into what payment providers take.
    """
    return str(uuid.uuid5(_IDEMPOTENCY, f"{consumer}\0{job_id}"))
