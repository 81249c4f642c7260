"""Medians of paired ratios, and how sure they are."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

WANTED = 0.95


@dataclass(frozen=True)
class Median:
    """A median with an interval that holds the true one with probability `coverage`, whatever the distribution."""

    value: float
    low: float
    high: float
    coverage: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def median(values: Sequence[float]) -> Median:
    """The median with the narrowest order-statistic interval of at least 95 %; the whole range where there is none."""
    ordered = sorted(values)
    n = len(ordered)
    rank = max((k for k in range(1, n // 2 + 1) if _coverage(n, k) >= WANTED), default=1)
    return Median(statistics.median(ordered), ordered[rank - 1], ordered[n - rank], _coverage(n, rank))


def _coverage(n: int, rank: int) -> float:
    """How probably the true median lies between the rank-th value from below and the one from above."""
    outside: int = sum(math.comb(n, k) for k in range(rank))
    return 1 - 2 * outside / float(2**n)


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
