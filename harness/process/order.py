"""Order in the work: a job with a place runs when it has its turn, else stands aside; then it passes the turn on.

The relay sends a row when it has its turn. It may have lost it until its copy begins: a replay of an older job has come
back, or an expired lease has sent a second copy. So the copy asks again, behind the fence, and keeps the key locked.
"""

from sqlalchemy.orm import Session

from harness.core.failure import Failure, Kind
from harness.core.outcome import Deferred, Stale
from harness.process.copy import Copy
from harness.process.spec import Limits
from harness.store.database import Database
from harness.store.order import Turn
from harness.store.store import Store


class OutOfTurn(Exception):
    """It is another job's turn: roll back, and stand aside. `taken`: that job is at work now."""

    def __init__(self, taken: bool) -> None:
        super().__init__(taken)
        self.taken = taken


def take_turn(session: Session, store: Store, copy: Copy) -> None:
    """Have the copy's key until this transaction ends. Raises OutOfTurn; a row that is gone is found by the claim."""
    turn = store.order.take_turn(session, copy.key, copy.generation or 0)
    if turn in (Turn.behind, Turn.taken):
        raise OutOfTurn(turn is Turn.taken)


def stand_aside(database: Database, store: Store, copy: Copy, limits: Limits, taken: bool) -> Deferred | Stale:
    """Give the row back to the relay, which finds whose turn it is. No try is spent, the delivery is not counted."""
    delay = limits.busy_delay if taken else 0.0
    with database.begin() as session:
        if not store.inbox.put_back(session, copy.key, copy.generation or 0, delay=delay):
            return Stale()
    why = Failure(Kind.retry_later, "OutOfTurn", "another job of its ordering key comes first")
    return Deferred(0, delay, why, False)


def pass_on(database: Database, store: Store, copy: Copy) -> None:
    """After the outcome of a job with a place has committed: the next of its key is due. Never raises.

    Likewise for one of which only so many are in flight: the relay is woken where more of its kind wait.
    """
    if copy.ordered is not None:
        store.wake.next_of(database, copy.arrival.service, copy.ordered)
    if copy.capped:
        store.wake.room_for(database, copy.arrival.service, copy.arrival.consumer)
