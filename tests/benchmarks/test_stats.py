"""The interval of a median, against the tables of the sign test."""

import pytest

from benchmarks.stats import median, quantile


@pytest.mark.parametrize(
    ("n", "low", "high", "coverage"),
    [
        (3, 1, 3, 0.75),
        (6, 1, 6, 0.969),
        (7, 1, 7, 0.984),
        (9, 2, 8, 0.961),
        (15, 4, 12, 0.965),
    ],
)
def test_order_statistic_interval(n: int, low: int, high: int, coverage: float) -> None:
    found = median([float(n - i) for i in range(n)])
    assert (found.value, found.low, found.high) == ((n + 1) / 2, low, high)
    assert found.coverage == pytest.approx(coverage, abs=0.001)


def test_quantiles_are_values_that_were_seen() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [quantile(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
