"""What to do with a letter, in one line: the runbook's table by reason, as `show` says it."""

from harness.core.reason import Reason
from harness.store.letter import Letter
from harness.store.processed_jobs import FenceRow, FenceState

#: Where the table is; each reason has its place there.
RUNBOOK = "docs/howto/runbook.md"

_REPLAY_FIRST = "replay {id} | discard {id} --reason …"
_DISCARD_FIRST = "discard {id} --reason … | replay {id}"
_NEXT = {
    Reason.exhausted: f"when its cause is over: {_REPLAY_FIRST}",
    Reason.timed_out: f"if it was slow only once: {_REPLAY_FIRST}",
    Reason.crashed: f"look at the worker's memory, then this one alone: {_REPLAY_FIRST}",
    Reason.permanent: f"mend what the error names, then: {_REPLAY_FIRST}",
    Reason.invalid_payload: "if the code was wrong, deploy it, then replay {id}; if the message was, send it under a "
    "new id, then discard {id} --reason …",
    Reason.undecodable: f"have its sender send it again, then: {_DISCARD_FIRST}",
    Reason.unknown_task: f"deploy the code that has the task, or correct the queue, then: {_REPLAY_FIRST}",
    Reason.not_ready: f"when it is there what the job waits for: {_REPLAY_FIRST}",
    Reason.too_old: "look in the data for its effect; it is there: discard {id} --reason …; it is not: replay {id}",
    Reason.conflict: "two contents under one id; this one is not needed: discard {id} --reason …; it is a job of its "
    "own: replay {id}",
    Reason.expired: f"if nobody needs it any more: {_DISCARD_FIRST}",
    Reason.revoked: f"ask who revoked it, then: {_DISCARD_FIRST}",
    Reason.outcome_unknown: "look at the other side first (below); it is there: discard {id} --reason …; it is not: "
    "replay {id}",
    Reason.broker: f"mend the queue or its limits, then: {_REPLAY_FIRST}",
}


def next_step(letter: Letter, fence: FenceRow | None, waits: bool) -> str:
    """The line; '' for a letter that is closed."""
    if letter.resolved_at is not None:
        return ""
    if fence is not None and fence.state is FenceState.DONE:
        return f"→ its job has succeeded meanwhile: replay {letter.id} closes the letter, and sends nothing"
    if waits:
        return f"→ it is being tried again: harness inbox {letter.job_id}"
    if letter.has_no_message:
        return f"→ nothing to replay: send it by hand, then discard {letter.id} --reason …; {RUNBOOK}#{letter.reason}"
    return f"→ {_NEXT[letter.reason].format(id=letter.id)}; {RUNBOOK}#{letter.reason}"
