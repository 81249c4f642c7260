"""A harness for Celery jobs: each takes effect exactly once, or leaves evidence.

from harness import Harness, JobTask, Job, Permanent, RetryLater, NotReady, Policy, backoff
"""

from harness.core.errors import (
    ConflictingJob,
    DualWrite,
    HarnessError,
    InvalidPayload,
    NotReady,
    OutcomeUnknown,
    Permanent,
    RetryLater,
    UsageError,
)
from harness.core.incoming import Delivered, Incoming, Unfit, Unreadable
from harness.core.policy import Policy
from harness.core.wait import backoff
from harness.enqueue import Enqueued
from harness.process.copy import Job
from harness.receive import CloudEvents, Fields, Received
from harness.worker.harness import Harness
from harness.worker.task import JobTask

__all__ = [
    "CloudEvents",
    "ConflictingJob",
    "Delivered",
    "DualWrite",
    "Enqueued",
    "Fields",
    "Harness",
    "HarnessError",
    "Incoming",
    "InvalidPayload",
    "Job",
    "JobTask",
    "NotReady",
    "OutcomeUnknown",
    "Permanent",
    "Policy",
    "Received",
    "RetryLater",
    "Unfit",
    "Unreadable",
    "UsageError",
    "backoff",
]
