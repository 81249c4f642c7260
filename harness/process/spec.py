"""What is known of a job before any message: its handler's signature, its policy, its gate."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy.orm import Session

from harness.core.classify import Permanents
from harness.core.policy import Policy
from harness.core.signature import Signature

#: Decides whether a dead letter may be replayed by beat: `(session, arguments) -> bool`.
Gate = Callable[[Session, Mapping[str, Any]], bool]
#: What becomes of an ordering key whose job is dead: the next one runs, or all wait until the letter is closed.
OnDead = Literal["go_on", "block"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Times (seconds) and counts that hold for every job of a service."""

    fence_wait: float = 10.0
    outage_hold: float = 60.0
    max_deliveries: int = 5
    recount_lease: float = 60.0
    busy_delay: float = 5.0
    too_old: float = 6 * 86_400.0
    immediate_tries: int = 3

    @property
    def fence_wait_ms(self) -> int:
        return max(1, round(self.fence_wait * 1000))


@dataclass(frozen=True, slots=True)
class External:
    """Of a job whose effects are outside of the database. Times in seconds.

    `limit`: its hard time limit. `margin`: how long after that a claim is given up. `unknown`: exception types, and
    predicates, that mean that nobody can tell whether the other side has acted.
    """

    limit: float
    margin: float = 30.0
    unknown: Permanents = ()


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job: `consumer` is the fence's second key and stays the same when the task is renamed.

    `max_in_flight`: so many of its inbox rows may be with the broker or at work at once; None for the setting's.
    """

    service: str
    task: str
    consumer: str
    signature: Signature
    policy: Policy = field(default_factory=Policy)
    queue_policies: Mapping[str, Policy] = field(default_factory=dict)
    permanent: Permanents = ()
    can_replay: Gate | None = None
    max_replays: int = 3
    max_age: float = 7 * 86_400.0
    on_dead: OnDead = "go_on"
    max_in_flight: int | None = None
    external: External | None = None

    def policy_for(self, queue: str) -> Policy:
        """A queue's policy wins over the job's, for it is the more special wish of the operator."""
        return self.queue_policies.get(queue, self.policy)
