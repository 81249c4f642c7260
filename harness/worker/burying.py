"""In the pool's child: a message that no handler runs becomes its outcome, and what comes after that is done."""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.core.errors import Unrecorded
from harness.core.failure import Failure
from harness.core.outcome import Outcome
from harness.core.policy import Policy
from harness.process import record
from harness.process.copy import Copy
from harness.worker import announce
from harness.worker.after import After
from harness.worker.asked import request_of
from harness.worker.holding import Unpublished
from harness.worker.reply import Reply, reply_of
from harness.worker.wire import Wire

if TYPE_CHECKING:
    from harness.worker.harness import Harness

log = logging.getLogger("harness")


def bury(harness: "Harness", task: Any, copy: Copy, failure: Failure, policy: Policy, wire: Wire) -> Reply:
    """Record the failure, then do what comes after the outcome. Only here is the body looked at: behind the commit."""
    copy = replace(copy, goes_on=True)  # nobody knows yet
    reply, outcome = record_only(harness, copy, failure, policy, blocks(task))
    request = request_of(wire, harness.accepts) if outcome is not None else None
    if outcome is None or request is None:
        return reply
    try:
        After(harness, task, copy, request).follow(outcome)
    except Unpublished as error:
        return Reply("unrecorded", str(error))
    return reply


def blocks(task: Any) -> bool:
    return getattr(task, "on_dead", None) == "block"


def record_only(
    harness: "Harness", copy: Copy, failure: Failure, policy: Policy, blocks: bool
) -> tuple[Reply, Outcome | None]:
    try:
        outcome = record(
            harness.database,
            harness.store,
            copy,
            failure,
            policy,
            harness.settings.limits,
            blocks=blocks,
        )
    except Unrecorded as error:
        log.error("%s", error)
        return Reply("unrecorded", str(error)), None
    announce.outcome(harness, copy, outcome, 0.0)
    return reply_of(outcome, None, 0.0), outcome
