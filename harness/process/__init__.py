"""What becomes of one delivery of one job: `deliver` is the pipe, the other modules are its steps.

rekey    a job that came under its task's name moves to its own
count    a copy that may have killed its worker before is counted before it works again
eta      a producer's eta is waited for in the inbox
work     fence, handler, commit
external in the place of work, for a job whose effects are outside of the database; unknown: its letters
verdict  what a failure leads to: a deferral or a dead letter; record: that of the worker's parent
settle   a copy whose job somebody else has decided; conflict: one that says something else under the same id
busy     a copy that has waited too long for another one; holding: a database that is away
order    a copy that comes out of turn
"""

from harness.process.copy import Copy, Job
from harness.process.deliver import deliver
from harness.process.record import record
from harness.process.spec import JobSpec, Limits

__all__ = ["Copy", "Job", "JobSpec", "Limits", "deliver", "record"]
