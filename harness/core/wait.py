"""The harness's own wait, and how long any wait of tenacity can be at most."""

import math
import random

from tenacity import RetryCallState
from tenacity.wait import (
    WaitBaseT,
    wait_base,
    wait_combine,
    wait_exponential,
    wait_random,
    wait_random_exponential,
)

from harness.core.errors import ConfigError

_SAMPLES = 16


class backoff(wait_base):
    """Waits that double, each drawn evenly from the upper half of its window, so that a crowd of failed jobs
    does not come back all at once and none comes back right away.

    `base` is the shortest first wait, `cap` the longest of all; both in seconds. Raises `ConfigError` where
    one is not a positive number.

    Examples:
        >>> wait = backoff(base=30, cap=3600)
        >>> [wait.window(n) for n in (1, 2, 3, 4)]
        [(30.0, 60.0), (60.0, 120.0), (120.0, 240.0), (240.0, 480.0)]
        >>> wait.window(100)
        (1800.0, 3600.0)
    """

    def __init__(self, base: float = 30.0, cap: float = 3600.0) -> None:
        for name, value in (("base", base), ("cap", cap)):
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"backoff: {name}={value!r} must be a positive number of seconds.")
        self.base = float(base)
        self.cap = float(cap)

    def window(self, n: int) -> tuple[float, float]:
        """The shortest and the longest wait, in seconds, after the n-th try (from 1)."""
        upper = min(self.cap, 2 * self.base * 2.0 ** min(max(n, 1) - 1, 500))
        return upper / 2, upper

    def __call__(self, retry_state: RetryCallState) -> float:
        return random.uniform(*self.window(retry_state.attempt_number))

    def __repr__(self) -> str:
        return f"backoff(base={self.base:g}, cap={self.cap:g})"


def upper_wait(wait: WaitBaseT, state: RetryCallState) -> float:
    """The longest wait, in seconds, that `wait` can give at `state`.

    Exact for a wait that has a `window(n)`, and for tenacity's own random ones and their sums. Of any other
    random one it is the longest of some draws: an estimate, which the margin of a fence's life covers.
    """
    window = getattr(wait, "window", None)
    if callable(window):
        return float(window(state.attempt_number)[1])
    if isinstance(wait, wait_combine):
        return sum(upper_wait(part, state) for part in wait.wait_funcs)
    if isinstance(wait, wait_random):
        return float(wait.wait_random_max)
    if isinstance(wait, wait_random_exponential):
        return float(wait_exponential.__call__(wait, state))
    return max(float(wait(state)) for _ in range(_SAMPLES))
