"""What a policy draws."""

import pytest
import tenacity

from harness import Harness, NotReady, Permanent, Policy, RetryLater, backoff
from harness.testing import delays, steady_jitter
from tests.testing.bank import jobs_of


def test_delays_of_a_policy() -> None:
    drawn = delays(Policy())
    assert [30 <= drawn[0] <= 60, 60 <= drawn[1] <= 120, 120 <= drawn[2] <= 240, 240 <= drawn[3] <= 480] == [True] * 4
    assert len(drawn) == 4
    assert delays(Policy()) != drawn
    assert delays(Policy(), Permanent("no")) == []
    assert delays(Policy(), RetryLater(7)) == [7] * 4
    assert sum(delays(Policy(not_ready_deadline=900), NotReady("no"))) == pytest.approx(900)
    endless = Policy(stop=tenacity.stop_never, reason="tests")
    assert len(delays(endless)) == 100
    assert len(delays(endless, most=3)) == 3


def test_delays_of_a_job_and_its_queue(harness: Harness, database: str) -> None:
    job = jobs_of(harness).credit
    with steady_jitter(0):
        assert delays(job) == [10]
    slow = Policy(wait=backoff(base=100, cap=1000), reason="tests")
    policies = harness.settings.model_copy(update={"policies": {"slow": slow}})
    harness.__dict__["settings"] = policies
    job.__dict__.pop("_spec", None)
    with steady_jitter(0):
        assert delays(job, queue="slow") == [100, 200, 400, 500]
        assert delays(job) == [10]


def test_steady_jitter() -> None:
    waits = {
        backoff(base=10, cap=100): (10, 20),
        tenacity.wait_random(1, 3): (1, 3),
        tenacity.wait_random_exponential(multiplier=8): (0, 8),
        tenacity.wait_fixed(5) + tenacity.wait_random(0, 2): (5, 7),
    }
    for wait, (low, high) in waits.items():
        policy = Policy(wait=wait, reason="tests")
        for at, expected in ((0, low), (1, high), (0.5, (low + high) / 2)):
            with steady_jitter(at):
                assert delays(policy)[0] == pytest.approx(expected), wait
    with pytest.raises(ValueError, match="from 0"), steady_jitter(2):
        pass
