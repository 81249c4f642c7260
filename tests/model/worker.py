"""What a copy in a worker's hand may do next, and what may be done to it."""

from __future__ import annotations

from collections.abc import Iterator

from .database import complete, must_wait, row_held, row_is_mine, takes_fence, verdict, void
from .spec import (
    ACK_ON_PROOF,
    BROKER,
    BUSY,
    COUNT,
    FENCE,
    FRESH_ID,
    LATE_EFFECT,
    LATE_FENCE,
    PACE,
    POPPED,
    REPLY,
    SEND,
    VERDICT,
    WORKING,
    Copy,
    Detached,
    Message,
    Row,
    State,
    World,
    recorded,
)

# (what happened, the state after it, whether the environment had to do it)
Step = tuple[str, State, bool]


def with_queue(s: State, *messages: Message) -> State:
    """Put messages into the broker (order does not matter: the broker promises none)."""
    return s._replace(queue=tuple(sorted((*s.queue, *messages))))


def with_hand(s: State, old: Copy, new: Copy | None) -> State:
    """Move one copy to its next step, or let go of it."""
    hands = list(s.hands)
    hands.remove(old)
    if new is not None:
        hands.append(new)
    return s._replace(hands=tuple(sorted(hands)))


def detach(s: State, c: Copy, what: str, may_commit: bool) -> State:
    """Leave the copy's open transaction to the server."""
    left = Detached(what, c.acts_as, may_commit)
    return s._replace(detached=tuple(sorted((*s.detached, left))))


def first_step(message: Message, world: World) -> str:
    """Where a copy begins: the delivery is counted before the work, unless it is the first one."""
    counted = (message.redelivered or message.again) and message.generation != FRESH_ID
    return COUNT if counted and world.variant.redelivery_counted else FENCE


def work_steps(s: State, c: Copy, world: World) -> Iterator[Step]:
    """All that this copy may do by itself."""
    if c.at == COUNT:
        yield from _count(s, c, world)
    elif c.at == FENCE:
        yield from _fence(s, c, world)
    elif c.at == WORKING:
        yield from _handler(s, c, world)
    elif c.at == VERDICT:
        yield from _verdict(s, c, world)
    elif c.at == BUSY:
        yield from _busy(s, c, world)
    elif c.at == SEND:
        after = with_hand(s, c, c._replace(at=REPLY))._replace(sent=True)
        yield "send what comes after, remove the row", after._replace(row=None if s.fence == "done" else s.row), False
    elif c.at == REPLY:
        proof = recorded(s) or not c.owner
        yield "ack", with_hand(s, c, None)._replace(broken="" if proof else ACK_ON_PROOF), False
    elif c.at == POPPED:  # known bad: until now nobody but this process has the message
        yield (
            "note it as unacknowledged",
            with_hand(s, c, c._replace(at=first_step(c.message, world), owner=True)),
            False,
        )
    elif c.at == LATE_EFFECT:  # known bad: the fence has committed, the work has not
        for end in sorted(world.handler):
            if end == "ok":
                after = with_hand(s, c, c._replace(at=REPLY))
                yield "commit the work", after._replace(effects=s.effects + 1), False
            else:
                yield f"handler: {end}", with_hand(s, c, c._replace(at=VERDICT, failure=end)), False
    elif c.at == LATE_FENCE:  # known bad: the work has committed, the fence has not
        yield "commit the fence", with_hand(s, c, c._replace(at=REPLY))._replace(fence="done"), False


def void_copy(s: State, c: Copy, world: World) -> State:
    """A copy whose job somebody else has decided; where that is done, it may be its turn to send what comes after."""
    sends = s.fence == "done" and world.variant.duplicate_sends
    return with_hand(void(s, c.acts_as, world), c, c._replace(at=SEND if sends else REPLY, failure="", era=-1))


def _count(s: State, c: Copy, world: World) -> Iterator[Step]:
    """Count the delivery before the work, in a transaction of its own; a broker copy moves its job."""
    broker = c.acts_as == BROKER
    if (broker and must_wait(s, BROKER)) or (s.row is not None and row_held(s)):
        yield "count: the lock is busy, give up waiting", with_hand(s, c, c._replace(at=BUSY)), False
        return
    row = s.row
    if broker and s.fence == "" and row is None:
        row = Row(0, deliveries=2, leased=True)
    elif row is not None and (
        row.generation == 0 and s.fence in ("", "waiting") if broker else row_is_mine(s, c.acts_as, world)
    ):
        row = row._replace(deliveries=min(row.deliveries + 1, world.max_deliveries + 1), leased=True)
    else:
        yield "count: not ours (void)", void_copy(s, c, world), False
        return
    over = row.deliveries > world.max_deliveries
    after = c._replace(acts_as=max(c.acts_as, 0), at=VERDICT if over else FENCE, failure="limit" if over else "")
    fence = "waiting" if broker else s.fence
    yield f"count delivery {row.deliveries}", with_hand(s, c, after)._replace(row=row, fence=fence), False


def _fence(s: State, c: Copy, world: World) -> Iterator[Step]:
    """Begin the work: validate, then the fence."""
    mode = world.variant.fence
    if "invalid" in world.handler:
        yield "arguments are invalid", with_hand(s, c, c._replace(at=VERDICT, failure="invalid")), False
        return
    started = c._replace(at=WORKING, era=s.era)
    if c.acts_as == FRESH_ID:
        yield "begin under a fresh id", with_hand(s, c, started), False
    elif must_wait(s, c.acts_as):
        yield "fence: busy, give up waiting", with_hand(s, c, c._replace(at=BUSY)), False
    elif not takes_fence(s, c.acts_as, world):
        yield "fence: not ours (void)", void_copy(s, c, world), False
    elif mode == "before":
        yield (
            "commit the fence",
            with_hand(s, c, c._replace(at=LATE_EFFECT))._replace(fence="done", row=None),
            False,
        )
    elif mode == "after":
        yield "look: no fence, begin", with_hand(s, c, started._replace(acts_as=FRESH_ID)), False
    else:
        early = s.row is not None and not s.row.due
        yield "take the fence, begin", with_hand(s, c, started)._replace(broken=PACE if early else ""), False


def _handler(s: State, c: Copy, world: World) -> Iterator[Step]:
    """The handler ends; when it succeeds, COMMIT follows."""
    for end in sorted(world.handler):
        if end == "ok":
            done = c._replace(at=LATE_FENCE if world.variant.fence == "after" else SEND, era=-1)
            yield "handler: ok, commit", with_hand(complete(s, c.acts_as, world), c, done), False
            if s.losses:
                again = FENCE if world.variant.lost_answer == "ask the fence" else REPLY
                lost = with_hand(detach(s, c, "work", True), c, c._replace(at=again, era=-1))
                yield "handler: ok, COMMIT sent, answer lost", lost._replace(losses=s.losses - 1), True
        elif end == "kill child":
            yield "handler: kills its child", child_dies(s, c, world), False
        elif end == "kill worker":
            yield "handler: kills its worker", worker_dies(s, c, world), False
        else:
            failed = with_hand(s, c, c._replace(at=VERDICT, failure=end))
            # It spends no try, so that nothing else bounds how often it is said.
            if end != "not ready" or s.era < world.not_ready + world.replays:
                yield f"handler: {end}, rollback", failed, False


def _verdict(s: State, c: Copy, world: World) -> Iterator[Step]:
    """Record what became of a failed run."""
    replied = c._replace(at=REPLY, failure="", era=-1)
    if world.variant.retry == "publish" and c.failure == "transient":
        new = Message(FRESH_ID if world.variant.retry_id == "fresh" else BROKER)
        yield "publish the retry", with_hand(with_queue(s, new), c, replied), False
        yield "publishing the retry fails", with_hand(s, c, replied), False
        return
    if c.acts_as == FRESH_ID:
        yield "verdict under a fresh id", with_hand(s, c, replied), False
        return
    if world.variant.verdict_takes_fence and must_wait(s, c.acts_as):
        return  # the parent keeps the message and tries again
    if row_held(s) and not world.variant.verdict_takes_fence:
        return
    if world.variant.verdict_takes_fence and not takes_fence(s, c.acts_as, world):
        yield f"verdict ({c.failure}): not ours (void)", void_copy(s, c, world), False
        return
    yield f"verdict ({c.failure})", with_hand(verdict(s, c, world), c, replied), False
    if s.losses and takes_fence(s, c.acts_as, world):
        lost = detach(s, c, c.failure, True)
        yield f"verdict ({c.failure}), answer lost", lost._replace(losses=s.losses - 1), True


def _busy(s: State, c: Copy, world: World) -> Iterator[Step]:
    """Someone else had the fence for too long: leave an inbox row instead of waiting, spend no try."""
    replied = c._replace(at=REPLY)
    if s.row is None:
        if not row_held(s):
            yield "busy: leave an inbox row", with_hand(s, c, replied)._replace(row=Row(0)), False
        return
    row = s.row
    if world.variant.busy_forgives and c.acts_as >= 0 and row.generation == c.acts_as and not row_held(s):
        row = row._replace(deliveries=max(row.deliveries - 1, 0), leased=False)
    yield "busy: the inbox row is there", with_hand(s, c, replied)._replace(row=row), False


def child_dies(s: State, c: Copy, world: World) -> State:
    """A child is killed: its transaction is left to the server, and the parent asks for a verdict.

    The parent knows the message only, not that the child had moved its job to the inbox.
    """
    if c.at == WORKING:
        s = detach(s, c, "work", "ok" in world.handler)
    return with_hand(s, c, c._replace(at=VERDICT, failure="crashed", acts_as=c.message.generation))


def worker_dies(s: State, c: Copy, world: World) -> State:
    """The whole worker is gone: the broker delivers the message again, flagged."""
    if c.at == WORKING:
        s = detach(s, c, "work", "ok" in world.handler)
    s = with_hand(s, c, None)
    return with_queue(s, c.message._replace(redelivered=True)) if c.owner else s
