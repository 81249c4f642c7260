"""How a job comes to each fail point, and which faults cannot be there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from harness.testing import POINTS, Fault
from harness.testing.failpoints import IN_PARENT
from tests.sweep import commands, jobs
from tests.sweep.lane import Lane

#: What the issue of a crash sweep is about; `raise_error` is a handler's own way to fail.
FAULTS = (Fault.kill_process, Fault.kill_worker, Fault.lose_database, Fault.lose_broker)

#: Sends a job, or has a command run, and returns how each job must end.
Drive = Callable[[Lane, str], dict[str, str]]


class Pair(NamedTuple):
    point: str
    fault: Fault

    def __str__(self) -> str:
        return f"{self.point}:{self.fault}"


@dataclass(frozen=True)
class Way:
    """How a job comes to a point. `setup`: what has to go wrong before, (point, fault) one after the other."""

    drive: Drive
    setup: tuple[Pair, ...] = ()


AGAIN = (Pair("after_fence", Fault.kill_worker),)
CLAIMED = (Pair("claim_committed", Fault.kill_process),)
REFUSED = (Pair("relay_leased", Fault.raise_error),)

#: Each point's way; a command's differs by fault, see `way_to`.
WAYS: dict[str, Way] = {
    **dict.fromkeys(("before_pool", "after_pool"), Way(jobs.good)),
    **dict.fromkeys(("before_count", "after_count"), Way(jobs.good, AGAIN)),
    **dict.fromkeys(("wait_written", "wait_committed"), Way(jobs.with_eta)),
    **dict.fromkeys(("before_fence", "after_fence", "before_handler", "after_handler"), Way(jobs.good)),
    **dict.fromkeys(("before_commit", "after_commit", "before_ack", "after_ack"), Way(jobs.good)),
    **dict.fromkeys(("before_claim", "claim_written", "claim_committed"), Way(jobs.outside)),
    **dict.fromkeys(("before_done", "done_written", "done_committed"), Way(jobs.outside)),
    "before_give_up": Way(jobs.outside, CLAIMED),
    **dict.fromkeys(("turn_taken", "before_pass_on", "after_pass_on"), Way(jobs.keyed)),
    **dict.fromkeys(("before_turn_back", "after_turn_back"), Way(jobs.keyed_while_another_works)),
    **dict.fromkeys(("before_take", "take_written", "take_committed", "take_acknowledged"), Way(jobs.received)),
    **dict.fromkeys(("before_take_letter", "after_take_letter"), Way(jobs.received_garbage)),
    **dict.fromkeys(("before_stand_aside", "after_stand_aside"), Way(jobs.beside_another_copy)),
    **dict.fromkeys(("before_verdict", "verdict_before_commit", "verdict_after_commit"), Way(jobs.retried)),
    **dict.fromkeys(("before_record", "after_record"), Way(jobs.whose_child_dies)),
    **dict.fromkeys(("before_alert", "after_alert"), Way(jobs.dead)),
    **dict.fromkeys(("before_send", "after_send", "before_store", "after_store"), Way(jobs.first_of_a_chain)),
    **dict.fromkeys(("before_row_removed", "after_row_removed"), Way(jobs.retried_first_of_a_chain)),
    **dict.fromkeys(("relay_lease_written", "relay_leased", "relay_published"), Way(jobs.retried)),
    **dict.fromkeys(("relay_before_release", "relay_after_release"), Way(jobs.retried, REFUSED)),
}
#: Where one fault takes another way: a worker that has just been started has no connection that could break; and a
#: key also goes on behind a job with external effects.
INSTEAD = {
    Pair("turn_taken", Fault.lose_database): Way(jobs.keyed_outside),
    Pair("before_pass_on", Fault.kill_worker): Way(jobs.keyed_outside),
    Pair("before_count", Fault.lose_database): Way(jobs.good, (Pair("before_commit", Fault.lose_broker),)),
}
#: Of the points of commands: the command in a process of its own, and the same in a worker, where there is a way.
COMMANDS: dict[str, tuple[Drive, Drive | None]] = {
    **dict.fromkeys(
        ("replay_held", "replay_written", "replay_committed"), (commands.replay_command, commands.replay_task)
    ),
    **dict.fromkeys(("discard_written", "discard_committed"), (commands.discard_command, None)),
    **dict.fromkeys(
        ("prune_fences_written", "prune_letters_written", "prune_committed"),
        (commands.prune_command, commands.prune_task),
    ),
    **dict.fromkeys(("before_enqueue", "after_enqueue"), (commands.producer, commands.enqueueing_job)),
}

#: Why a fault cannot be at a point.
IMPOSSIBLE: dict[Pair, str] = {
    **{Pair(point, Fault.lose_database): "the worker's parent has no connection to PostgreSQL" for point in IN_PARENT},
    **{
        Pair(point, fault): "a letter is discarded by a command, which has neither a worker nor a broker"
        for point, (_, in_worker) in COMMANDS.items()
        if in_worker is None
        for fault in (Fault.kill_worker, Fault.lose_broker)
    },
}
PAIRS = tuple(pair for pair in map(Pair._make, product(POINTS, FAULTS)) if pair not in IMPOSSIBLE)


def way_to(pair: Pair) -> Way:
    """How a job comes to the point of `pair`."""
    if pair.point not in COMMANDS:
        return INSTEAD.get(pair, WAYS[pair.point])
    alone, in_worker = COMMANDS[pair.point]
    if pair.fault in (Fault.kill_process, Fault.lose_database):
        return Way(alone)
    assert in_worker is not None
    return Way(in_worker)
