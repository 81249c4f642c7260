"""What can be done with a dead letter: replay it, discard it, or let the sweep replay those whose gate says so.

Start at `replay`: one transaction, fence first, that gives the job back to the inbox or finds that it has succeeded.
"""

from harness.replay.bulk import Progress, discard_many, replay_many
from harness.replay.discard import discard
from harness.replay.errors import (
    AlreadyReplayed,
    JobBusy,
    LetterChanged,
    LetterClosed,
    NoMessage,
    NoSuchLetter,
    ReasonMissing,
    Refused,
)
from harness.replay.gate import Decode, Gated
from harness.replay.replay import Result, replay
from harness.replay.sweep import sweep

__all__ = [
    "AlreadyReplayed",
    "Decode",
    "Gated",
    "JobBusy",
    "LetterChanged",
    "LetterClosed",
    "NoMessage",
    "NoSuchLetter",
    "Progress",
    "ReasonMissing",
    "Refused",
    "Result",
    "discard",
    "discard_many",
    "replay",
    "replay_many",
    "sweep",
]
