"""The verdict of the worker's parent: on a copy whose child died, or that no handler can run."""

from typing import Any

from sqlalchemy.exc import DBAPIError

from harness.core.failure import Failure
from harness.core.outcome import Duplicate, Outcome, Stale
from harness.core.policy import Policy
from harness.process.busy import is_lock_timeout, stand_aside
from harness.process.conflict import Conflicting, record_conflict
from harness.process.copy import Copy
from harness.process.count import count
from harness.process.holding import holding
from harness.process.order import pass_on
from harness.process.settle import Abandoned, NotRelayed
from harness.process.spec import Limits
from harness.process.unknown import give_up
from harness.process.verdict import verdict
from harness.store.database import Database
from harness.store.store import Store


def record(
    database: Database,
    store: Store,
    copy: Copy,
    failure: Failure,
    policy: Policy,
    limits: Limits,
    payload: Any = None,
    *,
    blocks: bool = False,
) -> Outcome:
    """Give the verdict on a copy whose child died or that no handler can run. Raises Unrecorded as `deliver` does.

    `blocks`: where the job is dead, its ordering key waits for a person.
    """

    current = copy

    def step() -> Outcome:
        nonlocal current
        try:
            try:
                if current.suspicious:
                    counted = count(database, store, current, limits)
                    if isinstance(counted, (Duplicate, Stale)):
                        return counted
                    current, _ = counted
                return verdict(database, store, current, failure, policy, limits, payload=payload, blocks=blocks)
            except NotRelayed:
                current = current.plain(current.key.consumer)
                return verdict(database, store, current, failure, policy, limits, payload=payload)
        except Abandoned as found:
            return give_up(database, store, current, found, limits, payload, failure, blocks)
        except Conflicting as found:
            return record_conflict(database, store, current, found, limits, payload)

    def patient_step() -> Outcome:
        nonlocal current
        current = copy
        try:
            return step()
        except DBAPIError as error:
            if not is_lock_timeout(error):
                raise
            return stand_aside(database, store, current, limits)

    outcome = holding(limits, patient_step)
    if copy.leaves_room:
        pass_on(database, store, copy)
    return outcome
