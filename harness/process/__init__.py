"""What becomes of one delivery of one job: `deliver` is the pipe, the other modules are its steps.

count  → a copy that may have killed its worker before is counted before it works again
work   → fence, handler, commit
verdict→ what a failure leads to: a deferral or a dead letter
settle → a copy whose job somebody else has decided
external → in the place of work, for a job whose effects are outside of the database; unknown → its letters
"""

from harness.process.copy import Copy, Job
from harness.process.deliver import deliver, record
from harness.process.spec import JobSpec, Limits

__all__ = ["Copy", "Job", "JobSpec", "Limits", "deliver", "record"]
