"""The second model: the jobs of one ordering key. Three jobs, their transactions, the relays, copies, letters, replays.

The number of a job is its transaction's: they begin in this order and commit in any. What a copy does behind its own
fence is the first model's; here it is enough that one copy of a job works at a time, and under its generation.

A job with external effects has let its transaction go, and the key's lock with it, while its handler is at work: from
its claim on only the row says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

ORDER = "a job begins when none before it waits, is sent or at work"
COMMITS = "no job is committed before one that has begun"
APART = "two jobs of a key never work at once"
BLOCKED = "no job begins behind a letter that blocks its key"
ONCE = "each job takes effect once"
ENDS = "from everywhere, all jobs can end without the environment's help"
PROMISES = (ORDER, COMMITS, APART, BLOCKED, ONCE, ENDS)


class Row(NamedTuple):
    """The job's inbox row. `place` is its number, but for a known-bad replay."""

    place: int
    generation: int = 0
    due: bool = True
    leased: bool = False
    stands_back: bool = False
    claimed: str = ""  # "", held, over: its time is, and nobody has completed it


class Job(NamedTuple):
    """What is committed of a job. `begun` is the observer's: a run of it has begun."""

    transaction: str = ""  # "", open, committed, rolled back
    row: Row | None = None
    letter: str = ""  # "", pending, replayed, closed
    effects: int = 0
    begun: bool = False


class State(NamedTuple):
    """Everything there is."""

    jobs: tuple[Job, ...]
    queue: tuple[tuple[int, int], ...] = ()  # (job, generation)
    at_work: tuple[tuple[int, int], ...] = ()  # in a transaction that holds the key's lock
    calling: tuple[tuple[int, int], ...] = ()  # claimed, and in no transaction
    passing: int = 0  # commits after which nobody has passed the turn on yet
    expiries: int = 0
    duplicates: int = 0
    crashes: int = 0
    failures: int = 0
    deaths: int = 0
    replays: int = 0
    broken: str = ""


@dataclass(frozen=True)
class Variant:
    """Switches that turn the design into something known to be wrong."""

    watermark: bool = True
    first_only: bool = True  # the oldest row of the key alone has its turn
    waiting_counts: bool = True  # also a row that waits for its next try is before the others
    asks_again: bool = True  # a copy looks, when it begins, whether it is still its turn
    locks_key: bool = True
    replay_keeps_place: bool = True
    letter_blocks: bool = True
    mends: bool = True
    claim_is_a_lease: bool = True  # for the relay the key of a claimed row is not free
    asks_for_claims: bool = True  # a copy looks, when it begins, whether another row of its key is claimed


@dataclass(frozen=True)
class World:
    """How much may happen. With `blocks` a dead job blocks its key, and a person discards its letter at some time."""

    name: str
    jobs: int = 3
    blocks: bool = False
    external: tuple[int, ...] = ()  # the jobs whose effects are outside of the database
    expiries: int = 0
    duplicates: int = 0
    crashes: int = 0
    failures: int = 0
    deaths: int = 0
    replays: int = 0
    variant: Variant = field(default_factory=Variant)

    def start(self) -> State:
        return State(
            (Job(),) * self.jobs,
            expiries=self.expiries,
            duplicates=self.duplicates,
            crashes=self.crashes,
            failures=self.failures,
            deaths=self.deaths,
            replays=self.replays,
        )


Step = tuple[str, State, bool]


def change(s: State, number: int, **values: object) -> State:
    """The state with one job changed."""
    jobs = list(s.jobs)
    jobs[number] = jobs[number]._replace(**values)
    return s._replace(jobs=tuple(jobs))


def row_of(s: State, number: int) -> Row:
    row = s.jobs[number].row
    assert row is not None
    return row


def is_first(s: State, number: int, world: World) -> bool:
    """No older row, no letter before it that blocks."""
    place = row_of(s, number).place
    for other, job in enumerate(s.jobs):
        if other == number:
            continue
        if world.variant.first_only and job.row is not None and job.row.place < place:
            counts = world.variant.waiting_counts or job.row.due
            if counts:
                return False
        if world.blocks and world.variant.letter_blocks and job.letter in ("pending", "replayed") and other < place:
            return False
    return True


def is_free(s: State, number: int) -> bool:
    return not any(job.row is not None and job.row.leased for n, job in enumerate(s.jobs) if n != number)


def below_watermark(s: State, number: int) -> bool:
    return not any(job.transaction == "open" for job in s.jobs[:number])


def steps(s: State, world: World) -> Iterator[Step]:
    """All that may happen next; the third value says whether the environment had to do it."""
    for number in range(len(s.jobs)):
        yield from _producer(s, number)
        yield from _relay(s, number, world)
        yield from _operator(s, number, world)
    for message in sorted(set(s.queue)):
        yield f"{message} begins", _begin(s, message, world), False
        if s.duplicates:
            yield f"{message} twice", s._replace(queue=_with(s.queue, message), duplicates=s.duplicates - 1), True
    for message in s.at_work:
        if message[0] in world.external:
            yield from _claims(s, message, world)
        else:
            yield from _ends(s, message, world)
    for message in s.calling:
        yield from _ends(s, message, world)
    if s.passing:
        yield "pass the turn on", _unpark(s)._replace(passing=s.passing - 1), False
        if s.crashes:
            yield "die before that", s._replace(passing=s.passing - 1, crashes=s.crashes - 1), True
    if world.variant.mends:
        first = _oldest(s)
        if first is not None and row_of(s, first).stands_back and is_first(s, first, world) and is_free(s, first):
            yield "mend", _unpark(s), False


def _producer(s: State, number: int) -> Iterator[Step]:
    job = s.jobs[number]
    if job.transaction == "" and (number == 0 or s.jobs[number - 1].transaction != ""):
        yield f"{number} begins its transaction", change(s, number, transaction="open"), False
    if job.transaction == "open":
        after = change(s, number, transaction="committed", row=Row(number))
        late = any(other.begun for other in s.jobs[number + 1 :])
        yield f"{number} commits", after._replace(broken=COMMITS if late else s.broken), False
        yield f"{number} rolls back", change(s, number, transaction="rolled back"), False


def _relay(s: State, number: int, world: World) -> Iterator[Step]:
    row = s.jobs[number].row
    if row is None:
        return
    if row.claimed == "held":
        if not any(other == number for other, _ in s.calling):  # its process is killed before that
            after = row._replace(claimed="over", leased=False)
            yield f"the claim of {number} is over", change(s, number, row=after), False
    elif not row.due:
        yield f"{number} is due", change(s, number, row=row._replace(due=True)), False
    elif row.leased:
        if s.expiries:
            yield (
                f"the lease of {number} ends",
                change(s, number, row=row._replace(leased=False))._replace(expiries=s.expiries - 1),
                True,
            )
    elif not row.stands_back:
        turn = is_first(s, number, world) and is_free(s, number)
        if turn or row.claimed == "over":  # that one has had its turn: only its letter is to be written
            if not turn or below_watermark(s, number) or not world.variant.watermark:
                sent = change(s, number, row=row._replace(leased=True))
                yield f"send {number}", sent._replace(queue=_with(s.queue, (number, row.generation))), False
        else:
            yield f"{number} stands back", change(s, number, row=row._replace(stands_back=True)), False


def _operator(s: State, number: int, world: World) -> Iterator[Step]:
    job = s.jobs[number]
    if job.letter != "pending":
        return
    if s.replays:
        place = number if world.variant.replay_keeps_place else len(s.jobs) + number
        after = change(s, number, letter="replayed", row=Row(place, generation=3 - s.replays))
        yield f"replay {number}", after._replace(replays=s.replays - 1), True
    if world.blocks:
        yield f"discard {number}", change(s, number, letter="closed")._replace(passing=s.passing + 1), False


def _begin(s: State, message: tuple[int, int], world: World) -> State:
    """A copy comes to a worker: duplicate, stale, at work already, out of turn; or it begins."""
    number, generation = message
    s = s._replace(queue=_without(s.queue, message))
    job = s.jobs[number]
    if job.row is None or job.row.generation != generation:
        return s
    if any(other == number for other, _ in (*s.at_work, *s.calling)):
        return s  # it finds the fence busy or claimed, and the row stays with the one at work
    if job.row.claimed:
        return _unknown(s, number)
    taken = world.variant.locks_key and bool(s.at_work)
    if world.variant.asks_for_claims:
        taken = taken or any(
            n != number and x.row is not None and x.row.claimed == "held" for n, x in enumerate(s.jobs)
        )
    if taken or (world.variant.asks_again and not is_first(s, number, world)):
        return change(s, number, row=job.row._replace(leased=False))._replace(passing=min(s.passing + 1, 2))
    broken = s.broken
    before = s.jobs[:number]
    if any(other.row is not None for other in before):
        broken = broken or ORDER
    if world.blocks and any(other.letter in ("pending", "replayed") for other in before):
        broken = broken or BLOCKED
    if s.at_work or s.calling:
        broken = broken or APART
    return change(s, number, begun=True)._replace(at_work=_with(s.at_work, message), broken=broken)


def _unknown(s: State, number: int) -> State:
    """A claim that nobody has completed becomes a letter."""
    return change(s, number, row=None, letter="pending")._replace(passing=min(s.passing + 1, 2))


def _claims(s: State, message: tuple[int, int], world: World) -> Iterator[Step]:
    """The transaction of the claim commits, or its worker dies before that."""
    number, generation = message
    claim = generation + 100
    row = row_of(s, number)._replace(generation=claim, claimed="held", leased=world.variant.claim_is_a_lease)
    idle = s._replace(at_work=_without(s.at_work, message))
    calling = _with(s.calling, (number, claim))
    yield f"{number} is claimed", change(idle, number, row=row)._replace(calling=calling), False
    if s.crashes:
        again = idle._replace(queue=_with(s.queue, message), crashes=s.crashes - 1)
        yield f"the worker of {number} is killed before it claims", again, True


def _ends(s: State, message: tuple[int, int], world: World) -> Iterator[Step]:
    number, generation = message
    job = s.jobs[number]
    claimed = message in s.calling
    if claimed:
        idle = s._replace(calling=_without(s.calling, message))
    else:
        idle = s._replace(at_work=_without(s.at_work, message))
    passed = idle._replace(passing=min(s.passing + 1, 2))
    row = row_of(s, number)
    closed = "closed" if job.letter else ""
    done = change(passed, number, row=None, letter=closed, effects=job.effects + 1)
    yield f"{number} succeeds", done, False
    if s.failures:
        fresh = generation % 100 + 10
        later = row._replace(generation=fresh, due=False, leased=False, stands_back=False, claimed="")
        yield f"{number} fails", change(passed, number, row=later)._replace(failures=s.failures - 1), True
    if s.deaths:
        yield f"{number} dies", change(passed, number, row=None, letter="pending")._replace(deaths=s.deaths - 1), True
    if s.crashes and claimed:  # the broker's copy of it is stale: the row has the job
        yield f"the worker of {number} is killed", idle._replace(crashes=s.crashes - 1), True
        yield f"the child of {number} is killed", _unknown(idle, number)._replace(crashes=s.crashes - 1), True
    elif s.crashes:
        again = idle._replace(queue=_with(s.queue, message), crashes=s.crashes - 1)
        yield f"the worker of {number} is killed", again, True


def _oldest(s: State) -> int | None:
    places = [(job.row.place, number) for number, job in enumerate(s.jobs) if job.row is not None]
    return min(places)[1] if places else None


def _unpark(s: State) -> State:
    """The oldest row of the key is looked at again."""
    first = _oldest(s)
    return s if first is None else change(s, first, row=row_of(s, first)._replace(stands_back=False))


def _with(items: tuple[tuple[int, int], ...], one: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((*items, one)))


def _without(items: tuple[tuple[int, int], ...], one: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    rest = list(items)
    rest.remove(one)
    return tuple(rest)


def ended(s: State) -> bool:
    """Nothing waits, and no key is blocked."""
    return all(job.transaction in ("committed", "rolled back") and job.row is None for job in s.jobs) and not (
        s.queue or s.at_work or s.calling
    )


def search(world: World, limit: int = 600_000) -> tuple[str, int, list[str]]:
    """Every interleaving: the first promise that is broken ("" for none), how many states, and the way there."""
    start = world.start()
    came: dict[State, tuple[State | None, str]] = {start: (None, "start")}
    order = [start]
    before: dict[State, list[State]] = {}
    for s in order:
        if s.broken or any(job.effects > 1 for job in s.jobs):
            return s.broken or ONCE, len(order), _way(came, s)
        for label, after, helped in steps(s, world):
            if after not in came:
                came[after] = (s, label)
                order.append(after)
                if len(order) > limit:
                    raise MemoryError(f"{world.name}: more than {limit} states")
            if not helped:
                before.setdefault(after, []).append(s)
    can_end = {s for s in order if ended(s)}
    todo = list(can_end)
    while todo:
        for s in before.get(todo.pop(), ()):
            if s not in can_end:
                can_end.add(s)
                todo.append(s)
    stuck = next((s for s in order if s not in can_end), None)
    return ("", len(order), []) if stuck is None else (ENDS, len(order), _way(came, stuck))


def _way(came: dict[State, tuple[State | None, str]], s: State | None) -> list[str]:
    way = []
    while s is not None:
        s, label = came[s]
        way.append(label)
    return way[::-1]


DESIGN = (
    World("leases end, a copy comes twice, a worker dies", expiries=2, duplicates=1, crashes=1),
    World("a run fails, a worker dies, a copy comes twice", failures=1, crashes=1, duplicates=1),
    World("a job dies and is replayed, a lease ends", deaths=1, replays=1, expiries=1),
    World("a job dies and is replayed, a run fails", jobs=2, deaths=1, replays=1, failures=1, crashes=1, duplicates=1),
    World("a dead job blocks, is replayed and dies again", blocks=True, deaths=2, replays=1, expiries=1),
    World(
        "a dead job blocks, is replayed, crashes",
        jobs=2,
        blocks=True,
        deaths=1,
        replays=1,
        crashes=1,
        expiries=1,
        failures=1,
    ),
    World("two external jobs, one fails, a worker dies", external=(0, 1), jobs=2, failures=1, crashes=2, duplicates=1),
    World("external behind a replay, a lease ends", external=(1,), deaths=1, replays=1, expiries=1),
    World("external behind an external replay", external=(0, 1), jobs=2, deaths=1, replays=1, failures=1, expiries=1),
    World("external, killed behind a replay", external=(1,), jobs=2, deaths=1, replays=1, crashes=1, expiries=1),
    World("external, killed, blocks, replayed", external=(0, 1), blocks=True, crashes=1, replays=1, expiries=1),
)
BAD = (
    (World("sent above the watermark", jobs=2, variant=Variant(watermark=False)), COMMITS),
    (World("sent before older rows", jobs=2, variant=Variant(first_only=False)), ORDER),
    (World("a retry lets its successor pass", jobs=2, failures=1, variant=Variant(waiting_counts=False)), ORDER),
    (
        World("a copy does not ask again", jobs=2, deaths=1, replays=1, variant=Variant(asks_again=False)),
        ORDER,
    ),
    (
        World(
            "a copy does not lock its key", jobs=2, deaths=1, replays=1, expiries=1, variant=Variant(locks_key=False)
        ),
        APART,
    ),
    (
        World("a replay takes a new place", jobs=2, deaths=1, replays=1, variant=Variant(replay_keeps_place=False)),
        ORDER,
    ),
    (
        World("a letter does not block", jobs=2, blocks=True, deaths=1, variant=Variant(letter_blocks=False)),
        BLOCKED,
    ),
    (
        World(
            "neither relay nor copy looks for a claim",
            jobs=2,
            external=(1,),
            deaths=1,
            replays=1,
            variant=Variant(claim_is_a_lease=False, asks_for_claims=False),
        ),
        APART,
    ),
    (
        World(
            "the relay alone looks for a claim",
            jobs=2,
            external=(1,),
            deaths=1,
            replays=1,
            expiries=1,
            variant=Variant(asks_for_claims=False),
        ),
        APART,
    ),
    (World("nobody mends a lost turn", jobs=2, crashes=1, variant=Variant(mends=False)), ENDS),
)
