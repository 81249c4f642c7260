"""A source for the sweep's workers: `-I tests.sweep.foreign`."""

from tests.soak.foreign import QUEUE
from tests.worker.app import credit, harness

harness.source("foreign", job=credit, queue=QUEUE)
