"""Why a letter could not be replayed or discarded. Nothing was changed then.

Refused
 ├ NoSuchLetter     the service has no letter of that number
 ├ LetterClosed     it has been resolved or discarded already
 ├ AlreadyReplayed  its job is in the inbox, on its way to a worker
 ├ JobBusy          a transaction has held the job's fence for too long
 ├ LetterChanged    it is not as the caller saw it
 ├ NoMessage        of what it tells of no message could be made
 └ ReasonMissing    a discard without a reason
"""

from harness.core.errors import HarnessError


class Refused(HarnessError):
    """The root: it says what is so, and what can be done."""


class NoSuchLetter(Refused):
    """The service has no letter of that number."""


class LetterClosed(Refused):
    """It has been resolved or discarded already."""


class AlreadyReplayed(Refused):
    """Its job is in the inbox, on its way to a worker."""


class JobBusy(Refused):
    """A transaction has held the job's fence for too long; try again."""


class LetterChanged(Refused):
    """It is not as the caller saw it: someone else was faster."""


class NoMessage(Refused):
    """It tells of a step of which no message could be made: there is nothing to send."""


class ReasonMissing(Refused):
    """A letter is not discarded without a reason."""
