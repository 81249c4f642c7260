"""One delivery of one job, and what its handler may know of it."""

from dataclasses import dataclass, replace
from datetime import datetime

from harness.core.ids import idempotency_key
from harness.store.inbox import Arrival, InboxRow
from harness.store.processed_jobs import Key


@dataclass(frozen=True, slots=True)
class Copy:
    """One delivery.

    `generation` is None for a copy that a producer sent, else the number of the inbox row that the relay sent. `eta`,
    `expires` and `sent_at` are what the message says. `revoked` is why the parent wants it not to run, or None. With
    `goes_on` something comes after the job: its inbox row outlives the work, until `settle_alone` removes it. `ordered`
    is the ordering key of a row that has a place in its order. `claim` is what the parent says of the claim that this
    delivery may take (see `external`), None for other jobs. `capped`: of its job only so many are in flight at once.
    """

    arrival: Arrival
    generation: int | None = None
    dispatches: int = 0
    redelivered: bool = False
    eta: datetime | None = None
    expires: datetime | None = None
    sent_at: datetime | None = None
    revoked: str | None = None
    worker: str = ""
    goes_on: bool = False
    ordered: str | None = None
    claim: str | None = None
    capped: bool = False

    @property
    def key(self) -> Key:
        return Key(self.arrival.job_id, self.arrival.consumer)

    @property
    def relayed(self) -> bool:
        return self.generation is not None

    @property
    def leaves_room(self) -> bool:
        """May another row wait for the end of this delivery: the next of its key, or one that was too many?"""
        return self.ordered is not None or self.capped

    @property
    def suspicious(self) -> bool:
        """May an earlier delivery of it have killed its worker? Then it is counted before it works."""
        return self.redelivered or self.dispatches > 1

    def adopted(self, generation: int = 0) -> "Copy":
        """The same delivery, now that it is counted; a producer's is the copy of the inbox row of `generation`."""
        mine = generation if self.generation is None else self.generation
        return replace(self, generation=mine, redelivered=False, dispatches=1)

    def plain(self, consumer: str) -> "Copy":
        """The same delivery as a producer's, for its marks have proved false."""
        arrival = replace(self.arrival, consumer=consumer)
        return replace(self, generation=None, dispatches=0, ordered=None, capped=False, arrival=arrival)

    def to_be_counted(self) -> "Copy":
        """The same delivery after it lost its connection in the handler: it may be what killed it."""
        return replace(self, redelivered=True)


def row_arrival(copy: Copy, row: InboxRow) -> Arrival:
    """The job as it was put in: the row has what was sent first, the relay's copy has headers of its own."""
    return replace(copy.arrival, message=row.message, ordering_key=row.ordering_key, sequence=row.sequence, xid=row.xid)


@dataclass(frozen=True, slots=True)
class Job:
    """What a handler gets for a parameter annotated `Job`.

    `attempt` counts tries from 1, `deliveries` since the last recorded outcome. `idempotency_key` is a UUID that is the
    same over all retries and replays, for the other side's API.
    """

    id: str
    task: str
    consumer: str
    attempt: int
    deliveries: int
    correlation_id: str
    queue: str
    tenant: str | None = None
    ordering_key: str | None = None
    replay_of: int | None = None

    @property
    def idempotency_key(self) -> str:
        return idempotency_key(self.consumer, self.id)


def job_of(copy: Copy, row: InboxRow | None) -> Job:
    """What its handler may know of this delivery; `row` is the job's inbox row, None for a first delivery."""
    arrival = copy.arrival
    return Job(
        id=arrival.job_id,
        task=arrival.task,
        consumer=arrival.consumer,
        attempt=row.attempts + 1 if row else 1,
        deliveries=row.deliveries if row else 1,
        correlation_id=arrival.correlation_id or arrival.job_id,
        queue=arrival.message.queue,
        tenant=arrival.tenant,
        ordering_key=arrival.ordering_key,
        replay_of=row.letter_id if row else None,
    )
