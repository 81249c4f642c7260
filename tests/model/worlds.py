"""The bounded worlds that are searched: the design in each, and each known-bad variant in the smallest."""

from __future__ import annotations

from .spec import (
    ACK_ON_PROOF,
    CAUSE,
    ENDS,
    NEXT_STEP,
    NO_GHOST,
    NO_LOSS,
    ONE_DECISION,
    ONE_EFFECT,
    PACE,
    Variant,
    World,
)

GOOD = frozenset({"ok"})
TRANSIENT = frozenset({"transient"})
PERMANENT = frozenset({"permanent"})
INVALID = frozenset({"invalid"})
KILLS_CHILD = frozenset({"kill child"})
KILLS_WORKER = frozenset({"kill worker"})
MOODY = frozenset({"ok", "transient", "permanent"})  # each run may end in any way

# Every kind of handler, every pair of misfortunes, both ways in. Each takes a few seconds at most.
DESIGN = (
    World("good handler, crash + duplicate + lost answer", GOOD, replays=0, copies=1),
    World("good handler, crash + duplicate", GOOD, losses=0, replays=0),
    World("moody handler, crash + lost answer", MOODY, duplicates=0, replays=0),
    World("moody handler, crash + replay", MOODY, duplicates=0, losses=0),
    World("moody handler, duplicate + replay", MOODY, crashes=0, losses=0),
    World("moody handler, lost answer + two replays", MOODY, crashes=0, duplicates=0, replays=2),
    World("moody handler, enqueued and sent", MOODY, duplicates=0, losses=0, copies=1, enqueued=True),
    World("moody handler, two producers, crash + replay", MOODY, duplicates=0, losses=0, copies=0, producers=2),
    World(
        "good handler, producer beside a copy, crash", GOOD, duplicates=0, losses=0, replays=0, copies=1, producers=1
    ),
    World("transient handler, crash + lost answer + replay", TRANSIENT, duplicates=0, max_deliveries=3),
    World("permanent handler, crash + duplicate", PERMANENT, losses=0, replays=0),
    World("invalid arguments, crash + duplicate + replay", INVALID, losses=0),
    World("handler kills its child, crash + replay", KILLS_CHILD, duplicates=0, losses=0),
    World("handler kills its worker, replay", KILLS_WORKER, crashes=0, duplicates=0, losses=0),
)

# Minutes, not seconds: `python -m tests.model --deep`.
DEEP = (
    World("deep: good handler, everything", GOOD),
    World("deep: three slots, moody handler, crash", MOODY, slots=3, duplicates=0, losses=0, replays=0),
    World("deep: moody handler, two crashes", MOODY, crashes=2, duplicates=0, losses=0, replays=0),
    World("deep: moody handler, crash + duplicate", MOODY, losses=0, replays=0),
    World("deep: moody handler, crash + lost answer + replay", MOODY, duplicates=0),
    World("deep: transient handler, crash + duplicate + replay", TRANSIENT, losses=0),
    World("deep: handler kills its child, crash + duplicate + replay", KILLS_CHILD, losses=0),
)


def _bad(
    name: str,
    variant: Variant,
    handler: frozenset[str] = GOOD,
    *,
    copies: int = 2,
    crashes: int = 0,
    duplicates: int = 0,
    losses: int = 0,
    replays: int = 0,
    producers: int = 0,
) -> World:
    return World(
        name,
        handler,
        copies=copies,
        crashes=crashes,
        duplicates=duplicates,
        losses=losses,
        replays=replays,
        producers=producers,
        variant=variant,
    )


# What is known to be wrong, and the promise that each breaks.
BAD: tuple[tuple[World, str], ...] = (
    (_bad("ack before commit: the proof", Variant(ack_first=True)), ACK_ON_PROOF),
    (_bad("ack before commit: the loss", Variant(ack_first=True), copies=1, crashes=1), NO_LOSS),
    (_bad("a message is taken, and noted then", Variant(fetch="two steps"), copies=1, crashes=1), NO_LOSS),
    (_bad("verdict without the fence", Variant(verdict_takes_fence=False), MOODY), ONE_DECISION),
    (_bad("fence committed before the work", Variant(fence="before"), copies=1, crashes=1), NO_LOSS),
    (_bad("fence committed after the work: race", Variant(fence="after")), ONE_EFFECT),
    (_bad("fence committed after the work: crash", Variant(fence="after"), copies=1, crashes=1), ONE_EFFECT),
    (_bad("retry published, publishing fails", Variant(retry="publish"), MOODY, copies=1), NO_LOSS),
    (
        _bad(
            "retry published under a fresh id, crash before the ack",
            Variant(retry="publish", retry_id="fresh"),
            MOODY,
            copies=1,
            crashes=1,
        ),
        ONE_EFFECT,
    ),
    (_bad("prune inside the window", Variant(prune_waits=False)), ONE_EFFECT),
    (
        _bad("relay copy without generation check", Variant(generation_checked=False), MOODY, duplicates=1),
        PACE,
    ),
    (
        _bad("replay without the fence", Variant(replay_takes_fence=False), MOODY, replays=2),
        ONE_EFFECT,
    ),
    (_bad("redeliveries not counted", Variant(redelivery_counted=False), KILLS_WORKER), ENDS),
    (_bad("lost answer taken for a commit", Variant(lost_answer="success"), copies=1, losses=1), NO_LOSS),
    (_bad("late row beside a 'dead' fence is left", Variant(late_row_removed=False), PERMANENT), ENDS),
    (
        _bad("replay leaves a late row as it is", Variant(replay_overwrites_row=False), MOODY, replays=1),
        ONE_DECISION,
    ),
    (_bad("duplicate merely skipped", Variant(duplicate_sends=False), copies=1, crashes=1), NEXT_STEP),
    (
        _bad("row removed with the work", Variant(row_outlives_work=False), crashes=1, duplicates=1),
        NEXT_STEP,
    ),
    (_bad("sent after the commit", Variant(enqueue="after"), copies=0, producers=1, crashes=1), NO_LOSS),
    (_bad("sent before the commit", Variant(enqueue="before"), copies=0, producers=1), NO_GHOST),
    (_bad("waiting for the fence counts as a crash", Variant(busy_forgives=False), TRANSIENT), CAUSE),
)
