"""What each transaction writes when it commits, and which locks an open one holds."""

from __future__ import annotations

from .spec import BROKER, CAUSE, FRESH_ID, PACE, WORKING, Copy, Detached, Row, State, World

OPEN = ("pending", "replayed")


def fence_held(s: State) -> bool:
    """An open transaction has inserted or updated the fence."""
    return any(c.at == WORKING and c.acts_as != FRESH_ID for c in s.hands) or any(
        d.acts_as != FRESH_ID for d in s.detached
    )


def row_held(s: State) -> bool:
    """An open transaction has deleted, written or inserted the inbox row."""
    return any(c.at == WORKING and c.acts_as >= 0 for c in s.hands) or any(
        d.acts_as >= 0 or d.what != "work" for d in s.detached
    )


def must_wait(s: State, acts_as: int) -> bool:
    """Whether taking the fence now would block.

    A broker copy's ``INSERT … DO NOTHING`` waits only for an uncommitted *insert*; a relay copy's
    ``DO UPDATE`` waits for any writer. Nobody ever writes a 'done' or 'dead' fence while a copy works.
    """
    if not fence_held(s):
        return False
    return s.fence == "" or (acts_as >= 0 and s.fence == "waiting")


def row_is_mine(s: State, acts_as: int, world: World) -> bool:
    """Whether the inbox row belongs to the generation that a relay copy acts under."""
    return s.row is not None and (s.row.generation == acts_as or not world.variant.generation_checked)


def takes_fence(s: State, acts_as: int, world: World) -> bool:
    """Whether the copy gets the fence (nobody holds it) and, for a relay copy, its row with it."""
    if acts_as == BROKER:
        return s.fence == ""
    return s.fence in ("", "waiting") and row_is_mine(s, acts_as, world)


def complete(s: State, acts_as: int, world: World) -> State:
    """Commit the work: fence, effect, and for a relay copy the row and the letter it names."""
    if acts_as == FRESH_ID:
        return s._replace(effects=s.effects + 1)
    letter = s.letter
    row = s.row
    if acts_as >= 0 and row is not None:
        letter = "resolved" if row.names_letter and letter in OPEN else letter
        row = row if world.variant.row_outlives_work else None
    return s._replace(fence="done", effects=s.effects + 1, row=row, letter=letter)


def void(s: State, acts_as: int, world: World) -> State:
    """The fence says that the job is somebody else's: duplicate or stale. Tidy what nobody else will."""
    if s.fence == "done":
        sends = world.variant.duplicate_sends and world.variant.row_outlives_work
        return s._replace(row=s.row if sends else None, letter="resolved" if s.letter in OPEN else s.letter)
    if s.fence == "dead" and acts_as >= 0 and world.variant.late_row_removed and row_is_mine(s, acts_as, world):
        return s._replace(row=None)
    return s


def write_verdict(s: State, failure: str, acts_as: int, world: World) -> State:
    """Commit the verdict of a copy that holds the fence."""
    attempts = (s.row.attempts if s.row else 0) + (failure != "not ready")
    final = failure in ("permanent", "invalid", "limit") or attempts >= world.tries
    fence = s.fence
    if world.variant.verdict_takes_fence:
        fence = "dead" if final else "waiting"
    if final:
        untouched = (s.crashes, s.duplicates, s.losses) == (world.crashes, world.duplicates, world.losses)
        groundless = failure == "limit" and untouched and not world.handler & {"kill child", "kill worker"}
        return s._replace(fence=fence, row=None, letter="pending", broken=CAUSE if groundless else s.broken)
    names = s.row is not None and s.row.names_letter
    row = Row(s.era + 1, attempts, due=False, names_letter=names)
    return s._replace(fence=fence, row=row, era=s.era + 1)


def verdict(s: State, c: Copy, world: World) -> State:
    """The verdict transaction: void unless it takes the fence."""
    if world.variant.verdict_takes_fence and not takes_fence(s, c.acts_as, world):
        return void(s, c.acts_as, world)
    if c.era not in (-1, s.era):
        s = s._replace(broken=PACE)  # the handler ran before the present deferral, and now spends its try
    return write_verdict(s, c.failure, c.acts_as, world)


def settle(s: State, d: Detached, commits: bool, world: World) -> State:
    """The server finds out that the client is gone: the transaction commits or vanishes, locks and all."""
    rest = list(s.detached)
    rest.remove(d)
    s = s._replace(detached=tuple(rest))
    if not commits:
        return s
    return complete(s, d.acts_as, world) if d.what == "work" else write_verdict(s, d.what, d.acts_as, world)


def replay(s: State, world: World) -> State:
    """Write a replay: the job waits again, under a new generation.

    A row may be there already: one that a copy left which had waited too long for the fence.
    """
    row = Row(s.era + 1, names_letter=True)
    if s.row is not None and not world.variant.replay_overwrites_row:
        row = s.row
    return s._replace(fence="waiting", row=row, letter="replayed", era=s.era + 1)
