"""What a policy draws, and a way to take the chance out of it."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tenacity.wait

from harness.core import wait
from harness.core.classify import classify
from harness.core.policy import Policy, Retry, decide


def delays(policy: Any, error: BaseException | None = None, *, queue: str = "", most: int = 100) -> list[float]:
    """The waits, in seconds, of a job that fails on each try with `error` (any transient one), until it is dead.

    `policy` is a Policy or a job, whose policy is then that of `queue`, if the queue has one. A policy without an end
    gives `most` waits. Each call draws anew; see `steady_jitter`.
    """
    spec = getattr(policy, "spec", None)
    found: Policy = policy if spec is None else spec.policy_for(queue)
    failure = classify(error or RuntimeError("it fails"), spec.permanent if spec else ())
    drawn: list[float] = []
    attempt = 1
    while len(drawn) < most:
        decision = decide(failure, attempt, found, sum(drawn))
        if not isinstance(decision, Retry):
            break
        drawn.append(decision.delay)
        attempt += decision.spends_try
    return drawn


@contextmanager
def steady_jitter(at: float = 0.5) -> Iterator[None]:
    """Inside the block each wait is drawn at the same place of its window: 0 the shortest, 1 the longest.

    It holds for `harness.backoff` and the random waits of tenacity, in this process, and for no other randomness.
    ValueError unless `at` is from 0 to 1.
    """
    if not 0 <= at <= 1:
        raise ValueError(f"at={at!r} must be from 0 (the shortest wait) to 1 (the longest).")
    modules: list[Any] = [wait, tenacity.wait]
    before = [module.random for module in modules]
    for module in modules:
        module.random = _Steady(at)
    try:
        yield
    finally:
        for module, own in zip(modules, before, strict=True):
            module.random = own


class _Steady:
    """The module `random`, with the two functions replaced that waits draw from."""

    def __init__(self, at: float) -> None:
        self.at = at

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * self.at

    def random(self) -> float:
        return self.at

    def __getattr__(self, name: str) -> Any:
        return getattr(random, name)
