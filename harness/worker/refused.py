"""In the parent, on Redis-protocol brokers: a right is missing. Connecting again, Celery's answer, helps nothing."""

import logging
import time

from redis.exceptions import NoPermissionError, ResponseError

log = logging.getLogger("harness")

#: Seconds: how soon behind another refusal one is the next of the same kind, and how long is waited at most.
PATIENCE, LONGEST = 10.0, 5.0


class Refusals:
    """Of one consumer, which would connect twenty times in a second."""

    def __init__(self) -> None:
        self._count, self._last = 0, 0.0

    def wait(self, error: BaseException) -> None:
        """Where `error` is one: longer each time, and say what is wrong."""
        if not is_refusal(error):
            return
        self._count = self._count + 1 if time.monotonic() - self._last < PATIENCE else 0
        if self._count > 1:
            log.error(
                "the broker goes on to refuse what a worker needs (%s): `celery -A yourapp harness check` names a "
                "right that is missing; the worker goes on trying",
                error,
            )
        time.sleep(min(0.1 * 2**self._count, LONGEST))
        self._last = time.monotonic()


def is_refusal(error: BaseException | None) -> bool:
    """Is it a right that is missing, by the word of the server, or by what that led to?"""
    if error is None:
        return False
    in_script = isinstance(error, ResponseError) and "ACL failure" in str(error)
    return in_script or isinstance(error, NoPermissionError) or is_refusal(error.__cause__)
