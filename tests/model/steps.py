"""Every step that the world may take from a state: workers, relay, operator, prune, clock, environment."""

from __future__ import annotations

from collections.abc import Iterator

from .database import fence_held, replay, row_held, settle
from .spec import (
    ACK_ON_PROOF,
    BROKER,
    FRESH_ID,
    POPPED,
    VERDICT,
    Copy,
    Message,
    Row,
    State,
    World,
    quiet,
    recorded,
)
from .worker import Step, child_dies, first_step, with_hand, with_queue, work_steps, worker_dies


def steps(s: State, world: World) -> Iterator[Step]:
    """All successors of ``s``."""
    s = s._replace(broken="")
    for message in sorted(set(s.queue)) if len(s.hands) < world.slots else ():
        yield _receive(s, message, world)
    for copy in sorted(set(s.hands)):
        who = f"copy {_name(copy)}"
        for label, after, helped in work_steps(s, copy, world):
            yield f"{who}: {label}", after, helped
        for label, after, helped in _misfortune(s, copy, world):
            yield f"{who}: {label}", after, helped
    for left in sorted(set(s.detached)):
        yield "server drops a detached transaction", settle(s, left, False, world), False
        if left.may_commit:
            yield "server commits a detached transaction", settle(s, left, True, world), False
    yield from _producer(s, world)
    yield from _relay(s, world)
    yield from _clock(s)
    yield from _people(s, world)


def _name(c: Copy) -> str:
    name = {BROKER: "from the producer", FRESH_ID: "with a fresh id"}.get(c.message.generation)
    flag = " (redelivered)" if c.message.redelivered else ""
    return (name or f"from the relay, generation {c.message.generation}") + flag


def _receive(s: State, message: Message, world: World) -> Step:
    queue = list(s.queue)
    queue.remove(message)
    whole = world.variant.fetch == "one step"
    at = first_step(message, world) if whole else POPPED
    copy = Copy(message, at, message.generation, owner=whole)
    s = s._replace(queue=tuple(queue), hands=tuple(sorted((*s.hands, copy))))
    if world.variant.ack_first:
        proof = "" if recorded(s) else ACK_ON_PROOF
        return (
            f"copy {_name(copy)}: received and acked",
            with_hand(s, copy, copy._replace(owner=False))._replace(broken=proof),
            False,
        )
    return f"copy {_name(copy)}: received", s, False


def _misfortune(s: State, c: Copy, world: World) -> Iterator[Step]:
    """What the environment may do to a copy, while its budget lasts."""
    if s.crashes:
        fewer = s._replace(crashes=s.crashes - 1)
        if not (c.at == VERDICT and c.failure == "crashed"):  # that verdict is asked for until it is given
            yield "its child is killed", child_dies(fewer, c, world), True
        yield "its worker is killed", worker_dies(fewer, c, world), True
    if s.duplicates and c.owner:
        lost = with_hand(s, c, c._replace(owner=False))
        again = with_queue(lost, c.message._replace(redelivered=True))
        yield "the broker loses patience", again._replace(duplicates=s.duplicates - 1), True


def _relayed(s: State) -> int:
    """How many copies are about that work on the inbox row."""
    return sum(m.generation >= 0 for m in s.queue) + sum(c.acts_as >= 0 for c in s.hands)


def _relay(s: State, world: World) -> Iterator[Step]:
    if s.relay is None:
        row = s.row
        free = row is not None and row.due and not row.leased and not row_held(s)
        if row is not None and free and _relayed(s) < world.relayed:
            leased = row._replace(
                leased=True,
                dispatches=min(row.dispatches + 1, 2),
                deliveries=row.deliveries + (row.dispatches == 0),
            )
            message = Message(row.generation, again=row.dispatches > 0)
            yield "relay: lease the row", s._replace(row=leased, relay=message), False
        return
    yield "relay: publish", with_queue(s._replace(relay=None), s.relay), False
    if s.crashes:
        fewer = s._replace(crashes=s.crashes - 1, relay=None)
        yield "relay: killed before it publishes", fewer, True
        if s.row is not None and s.row.generation == s.relay.generation and not row_held(s):
            freed = fewer._replace(row=s.row._replace(leased=False))
            yield "relay: publishing fails, lease cleared", freed, True


def _clock(s: State) -> Iterator[Step]:
    if s.row is None or row_held(s):
        return
    if not s.row.due:
        yield "time passes: the row is due", s._replace(row=s.row._replace(due=True)), False
    if s.row.leased:
        freed = s._replace(row=s.row._replace(leased=False))
        # Leases are long: one that ends while a copy of the row is about costs the environment.
        if s.relay is None and not _relayed(s):
            yield "the lease ends", freed, False
        elif s.duplicates:
            yield "the lease ends early", freed._replace(duplicates=s.duplicates - 1), True


def _producer(s: State, world: World) -> Iterator[Step]:
    """A transaction that enqueues the job. One is at work at a time: the unique key makes a second one wait."""
    mode = world.variant.enqueue
    if s.enqueuing == "":
        if s.producers:
            begun = s._replace(producers=s.producers - 1, enqueuing="open")
            yield "producer: begins", with_queue(begun, Message(BROKER)) if mode == "before" else begun, False
        return
    ended = s._replace(enqueuing="")
    if s.enqueuing == "late publish":
        yield "producer: publishes", with_queue(ended, Message(BROKER)), False
        if s.crashes:
            yield "producer: killed before it publishes", ended._replace(crashes=s.crashes - 1), True
        return
    yield "producer: rolls back", ended, False
    if s.crashes:
        yield "producer: killed before its commit", ended._replace(crashes=s.crashes - 1), True
    if mode == "after":
        yield "producer: commits, has not published", s._replace(enqueuing="late publish", wanted=True), False
    elif mode == "before":
        yield "producer: commits", ended._replace(wanted=True), False
    elif s.row is not None or s.fence in ("done", "dead"):
        yield "producer: commits, the job is known", ended._replace(wanted=True), False
    else:
        yield "producer: commits its row", ended._replace(row=Row(0), wanted=True), False


def _people(s: State, world: World) -> Iterator[Step]:
    """Operators and the prune job. Nothing may depend on them."""
    fewer = s._replace(replays=s.replays - 1)
    if world.variant.replay_takes_fence:
        if s.replays and s.letter == "pending" and not fence_held(s):
            if s.fence == "dead":
                yield "operator: replay", replay(fewer, world), True
                yield "operator: discard", fewer._replace(letter="discarded"), True
            elif s.fence == "done":
                yield "operator: replay finds the job done", fewer._replace(letter="resolved"), True
    else:
        if s.replays and s.letter == "pending":
            yield "operator: looks, wants a replay", fewer._replace(looks=s.looks + 1), True
        if s.looks:
            yield "operator: writes the replay, fence unseen", replay(s, world)._replace(looks=s.looks - 1), False
    settled = s.fence == "done" and s.row is None and s.letter not in ("pending", "replayed")
    if settled and (quiet(s) or not world.variant.prune_waits):
        yield "prune the fence", s._replace(fence="", pruned=True), True
