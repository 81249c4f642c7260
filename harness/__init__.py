"""A harness for Celery jobs: each takes effect exactly once, or leaves evidence.

from harness import Harness, JobTask, Job, Permanent, RetryLater, NotReady, Policy, backoff
"""

from harness.core.errors import HarnessError, InvalidPayload, NotReady, Permanent, RetryLater
from harness.core.policy import Policy
from harness.core.wait import backoff
from harness.process.copy import Job
from harness.worker.harness import Harness
from harness.worker.task import JobTask

__all__ = [
    "Harness",
    "HarnessError",
    "InvalidPayload",
    "Job",
    "JobTask",
    "NotReady",
    "Permanent",
    "Policy",
    "RetryLater",
    "backoff",
]
