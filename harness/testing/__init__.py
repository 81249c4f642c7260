"""Helpers for the tests of a project whose tasks are jobs. `docs/howto/testing.md` shows them at work.

`Jobs`          runs jobs in the test's own transaction; asserts on what was sent, deferred, dead (`harness_jobs`)
`Worker`        a real worker as a process, with fail points (`harness_worker`)
`delays`, `steady_jitter`  what a policy draws
"""

from harness.core.failure import Failure, Kind
from harness.core.outcome import Completed, Dead, Deferred, Duplicate, Outcome, Stale
from harness.core.reason import Reason
from harness.testing.clock import delays, steady_jitter
from harness.testing.failpoints import POINTS, FailPoint, FailPointError, Fault
from harness.testing.jobs import Jobs, Ran
from harness.testing.rows import JobRows
from harness.testing.sent import Sent
from harness.testing.worker import Worker, WorkerFailed

__all__ = [
    "POINTS",
    "Completed",
    "Dead",
    "Deferred",
    "Duplicate",
    "FailPoint",
    "FailPointError",
    "Failure",
    "Fault",
    "JobRows",
    "Jobs",
    "Kind",
    "Outcome",
    "Ran",
    "Reason",
    "Sent",
    "Stale",
    "Worker",
    "WorkerFailed",
    "delays",
    "steady_jitter",
]
