"""Is what happened to a job of some kind a path of the model? Of jobs with external effects, of their own model."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.model import outside
from tests.model.spec import Variant, World
from tests.model.traces import BUDGETS, Seen, TooMany, explained, first_misfit
from tests.soak.kinds import Kind

#: States to look at between two transactions.
LIMIT = 60_000
#: How a run of a kind may end, where that is not known by `good` alone.
ENDS = {
    "crash": {"ok", "kill child"},
    "keyed crash": {"ok", "kill child"},
    "crash for ever": {"kill child"},
    "poison": {"invalid"},
    "received garbage": {"invalid"},
    "enqueue not ready": {"ok", "transient", "not ready"},
}
#: Misfortunes of a job with external effects: children killed, workers killed, answers lost, processes stopped.
OUTSIDE = ((0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (1, 1, 1, 0), (1, 1, 1, 1), (2, 3, 2, 1))


def misfit(trace: list[Seen], kind: Kind) -> int | str | None:
    """None: a path. A number: the step that fits nowhere. A text: the kind that was too large to decide."""
    if kind.task == "outside":
        return _misfit_outside(trace, kind)
    place, undecided = 0, False
    for outlives in (kind.name == "chain", kind.name != "chain"):
        try:
            answer = first_misfit(trace, _world(kind, trace, outlives), LIMIT, BUDGETS)
        except TooMany:
            undecided = True
            continue
        if answer is None:
            return None
        place = max(place, answer)
    return kind.name if undecided else place


def _world(kind: Kind, trace: list[Seen], outlives: bool) -> World:
    """`outlives`: something comes after the job, and its inbox row stands for that until it is sent."""
    # What can't be read has no job: it is its source's, which buries it as it comes.
    stored = kind.door != "send" and kind.name != "received garbage"
    return World(
        kind.name,
        frozenset(ENDS.get(kind.name, {"ok", "transient"} if kind.good else {"permanent"})),
        copies={"duplicate": 2, "enqueue and send": 1}.get(kind.name, 0 if stored else 1),
        producers=int(stored),
        tries=5,
        max_deliveries=5,
        replays=sum(one.letter == "replayed" for one in trace),
        variant=Variant(row_outlives_work=outlives),
    )


def _misfit_outside(trace: list[Seen], kind: Kind) -> int | str | None:
    """That model knows no tries, and of a letter that it is open."""
    told: list[Seen] = []
    for one in trace:
        plain = Seen(
            one.fence, None if one.tries is None else 0, "pending" if one.letter == "pending" else "", one.effects
        )
        if not told or told[-1] != plain:
            told.append(plain)
    place, undecided = 0, False
    for kills, deaths, losses, stops in OUTSIDE:
        world = outside.World(
            kind.name,
            copies=int(kind.door == "send"),
            kills=kills,
            deaths=deaths,
            losses=losses,
            stops=stops,
            replays=sum(one.letter == "replayed" for one in trace),
            fails=True,
            sends=len(told) + 2,
        )
        start, rest = world.start(), told
        if kind.door == "enqueue":
            if not told or told[0] != Seen("", 0):
                return 0
            start, rest = start._replace(row=1, numbers=1), told[1:]
        try:
            answer = explained(rest, start, _after(world), _look, LIMIT)
        except TooMany:
            undecided = True
            continue
        if answer is None:
            return None
        place = max(place, answer + len(told) - len(rest))
    return kind.name if undecided else place


def _after(world: outside.World) -> Callable[[outside.State], Iterable[outside.State]]:
    return lambda s: (then for _, then in outside.steps(s, world))


def _look(s: outside.State) -> Seen:
    return Seen(s.fence, None if s.row < 0 else 0, "pending" if s.letter else "", s.records)
