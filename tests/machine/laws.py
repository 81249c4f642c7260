"""The laws as a model: what every transaction of the product leaves behind, and what is said of it.

One world holds what is committed for all jobs of an example. Every method of `Laws` is one verb of the product, as a
sequence of transactions; a fault strikes at one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.machine.world import (
    EXHAUSTED,
    FENCE_TTL,
    HOPELESS,
    LATER,
    LEASE,
    LETTER_TTL,
    LIMITS,
    LONGEST_LEASE,
    NOT_READY_DEADLINE,
    NOT_READY_WAIT,
    SOON,
    TRIES,
    WAIT,
    Fence,
    Key,
    Letter,
    Row,
    Sent,
    World,
)


class Died(BaseException):
    """The process is gone."""


class Away(Exception):
    """The database is away."""


class LostAtWork(Away):
    """It went away in the handler."""


class Busy(Exception):
    """The fence is held for longer than this copy waits."""


class NotOurs(Exception):
    """The fence or the row is somebody else's."""


class NotRelayed(Exception):
    """Marks of the relay on a job that nobody knows."""


class Conflict(Exception):
    """The id stands for another content."""


class Failed(Exception):
    """The try has failed, as `kind` says."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Refused(Exception):
    """What an operator is told; the name of the product's error."""


@dataclass
class Fault:
    """Strikes at the transaction number `at`. `kind`: die, lose (nothing committed), unanswered (committed)."""

    kind: str
    at: int
    at_work: bool = False
    fired: bool = False


@dataclass
class Hold:
    """What a copy at work holds, while another one is delivered. `inserted`: its fence is new, seen by nobody."""

    key: Key
    inserted: bool
    generation: int | None


Said = tuple[Any, ...]


@dataclass
class _Step:
    """The copy as it is between two steps of its delivery."""

    sent: Sent


class Laws:
    """The verbs, on one world."""

    def __init__(self, world: World, fault: Fault | None = None, hold: Hold | None = None) -> None:
        self.world, self.fault, self.hold = world, fault, hold
        self.transactions = 0

    # -- transactions ----------------------------------------------------------------------------------------------

    def tx(self, act: Callable[[], Said], *, works: bool = False) -> Said:
        """All of `act` or nothing of it."""
        fault = self.fault if self.fault is not None and self.fault.at == self.transactions else None
        self.transactions += 1
        before = self.world.copy()
        if fault is not None and (works or not fault.at_work):
            fault.fired = True
            if fault.kind == "die":
                raise Died
            if fault.kind == "lose":
                raise LostAtWork if fault.at_work else Away
        try:
            said = act()
        except BaseException:
            self.world.__dict__.update(before.__dict__)
            raise
        if fault is not None and fault.fired:
            raise Away
        return said

    # -- rows ------------------------------------------------------------------------------------------------------

    def take(self, sent: Sent, state: str) -> bool:
        key, relayed = sent.key, sent.generation is not None
        if self.hold is not None and self.hold.key == key:
            raise Busy
        fence = self.world.fences.get(key)
        if fence is None or (relayed and fence.state == "waiting"):
            first = sent.content if fence is None or fence.content is None else fence.content
            self.world.fences[key] = Fence(state, self.world.now, first)
            return True
        return False

    # -- two contents of one id --------------------------------------------------------------------------------------

    def check(self, sent: Sent, fence: Fence) -> None:
        """Raise Conflict where the copy's content is not the job's."""
        known = fence.content
        if known is None and fence.state == "dead":
            number = self.world.open_letter(sent.key)
            known = None if number is None else self.world.letters[number].content
        elif known is None and sent.key in self.world.rows:
            known = self.world.rows[sent.key].content
        if known is not None and known != sent.content:
            raise Conflict

    def file(self, key: Key, content: int) -> None:
        """The letter of another content; nothing where it is there already."""
        own = key.filed(content)
        if own not in self.world.fences:
            self.world.fences[own] = Fence("dead", self.world.now, content)
            self.world.letters.append(Letter(own, content, "conflict", 0, 1, 1, audit=["dead_lettered"]))

    def evict(self, key: Key, content: int) -> bool:
        """A row with another content makes room."""
        row = self.world.rows.get(key)
        if row is None or row.content == content:
            return False
        self.file(key, row.content)
        self.take_out(key)
        return True

    def take_out(self, key: Key) -> None:
        self.supersede(self.world.rows.pop(key).letter)

    def supersede(self, number: int | None) -> None:
        if number is not None and self.world.letters[number].is_open:
            closed = self.world.letters[number]
            closed.status, closed.resolved = "replayed", self.world.now
            closed.lineage.append("superseded")

    def conflict(self, sent: Sent) -> Said:
        """What the copy of another content leaves behind."""
        new = sent.key.filed(sent.content) not in self.world.fences
        self.file(sent.key, sent.content)
        row = self.world.rows.get(sent.key)
        if row is not None and row.generation == sent.generation and row.content == sent.content:
            self.take_out(sent.key)
        return ("dead", "conflict", 0) if new else ("conflict again",)

    def row_of(self, sent: Sent, generation: int | None) -> Row | None:
        row = self.world.rows.get(sent.key)
        return row if row is not None and row.generation == generation else None

    def settle(self, sent: Sent) -> Said:
        world, key = self.world, sent.key
        fence = world.fences.get(key)
        if self.hold is not None and self.hold.key == key and not self.hold.inserted:
            raise Busy
        if fence is not None:
            self.check(sent, fence)
        row = world.rows.get(key)
        if fence is None and sent.generation is not None and row is None:
            raise NotRelayed
        mine = row is not None and row.content == sent.content
        if fence is None or fence.state != "done":
            dead = fence is not None and fence.state == "dead"
            if dead and mine and sent.generation is not None and self.row_of(sent, sent.generation):
                del world.rows[key]
            return ("stale", dead)
        if mine and not sent.goes_on:
            del world.rows[key]
        self.resolve(key)
        return ("duplicate",)

    def resolve(self, key: Key) -> None:
        number = self.world.open_letter(key)
        if number is not None:
            letter = self.world.letters[number]
            letter.status, letter.resolved = "replayed", self.world.now
            letter.lineage.append("resolved")

    # -- a delivery ------------------------------------------------------------------------------------------------

    def deliver(
        self, sent: Sent, own: str, doing: str, revoked: bool = False, rival: Callable[[Laws], Said] | None = None
    ) -> Said:
        """One delivery to a worker that knows the task; `own` is the job's consumer, `doing` what its handler does."""
        while True:
            step = _Step(sent)
            try:
                try:
                    return self.step(step, own, doing, revoked, rival)
                finally:
                    sent = step.sent
            except Conflict:
                try:
                    return self.tx(lambda sent=sent: self.conflict(sent))
                except Away:
                    continue
            except NotRelayed:
                sent = sent.plain(own)
            except LostAtWork:
                sent = sent._replace(redelivered=True)
            except Away:
                continue
            except Busy:
                try:
                    return self.tx(lambda sent=sent: self.stand_aside(sent))
                except Away:
                    continue

    def step(self, at: _Step, own: str, doing: str, revoked: bool, rival: Callable[[Laws], Said] | None) -> Said:
        if at.sent.consumer != own:
            return self.rekey(at.sent, own)
        if at.sent.suspicious:
            counted = self.count(at.sent)
            if counted[0] != "counted":
                return counted
            at.sent = at.sent.adopted(counted[2])
            if counted[1] > LIMITS.max_deliveries:
                return self.verdict(at.sent, "crashed", final="crashed")
        sent = at.sent
        if revoked:
            row: list[Row | None] = []
            self.tx(lambda: ("looked", row.append(self.world.rows.get(sent.key))))
            if not (sent.generation is not None and row[0] is not None and row[0].letter is not None):
                return self.verdict(sent, "revoked")
        if sent.eta is not None and (waits := self.wait_for(sent, sent.eta)) is not None:
            return waits
        if doing == "invalid":
            return self.verdict(sent, "invalid")
        return self.work(sent, doing, rival)

    def record(self, sent: Sent, kind: str) -> Said:
        """The verdict on a copy that no handler ran or whose process died."""
        while True:
            current = sent
            try:
                try:
                    if current.suspicious:
                        counted = self.count(current)
                        if counted[0] != "counted":
                            return counted
                        current = current.adopted(counted[2])
                    return self.verdict(current, kind)
                except NotRelayed:
                    return self.verdict(current.plain(current.consumer), kind)
                except Conflict:
                    return self.tx(lambda current=current: self.conflict(current))
            except Away:
                continue

    def count(self, sent: Sent) -> Said:
        world = self.world

        def act() -> Said:
            if sent.generation is None:
                if self.take(sent, "waiting"):
                    fresh = world.fresh() if self.evict(sent.key, sent.content) else 0
                    if sent.key not in world.rows:
                        world.rows[sent.key] = Row(
                            world.now,
                            world.now,
                            sent.content,
                            fresh,
                            deliveries=2,
                            dispatches=1,
                            leased=world.now + LIMITS.recount_lease,
                        )
                        return ("counted", 2, fresh)
                elif world.fences[sent.key].state != "waiting":
                    return self.settle(sent)
                else:
                    self.check(sent, world.fences[sent.key])
            row = self.row_of(sent, sent.generation or 0)
            hold = self.hold
            if hold is not None and hold.key == sent.key and row is not None and hold.generation == row.generation:
                raise Busy
            if row is None:
                return self.settle(sent)
            row.deliveries += 1
            row.dispatches = max(row.dispatches, 1)
            row.leased = max(row.leased or 0.0, world.now + LIMITS.recount_lease)
            return ("counted", row.deliveries, 0)

        return self.tx(act)

    def work(self, sent: Sent, doing: str, rival: Callable[[Laws], Said] | None) -> Said:
        world = self.world
        beside: list[Said] = []
        if rival is not None and self.runs(sent):
            fence = world.fences.get(sent.key)
            beside.append(rival(Laws(world, hold=Hold(sent.key, fence is None, sent.generation))))

        def act() -> Said:
            before = world.copy().fences
            if not self.take(sent, "done"):
                return self.settle(sent)
            row = None
            if sent.generation is not None:
                row = self.row_of(sent, sent.generation)
                if row is None:
                    world.fences = before
                    return self.settle(sent)
                if not sent.goes_on:
                    del world.rows[sent.key]
            self.refuse_late(sent, row)
            world.effects[sent.job_id, sent.content] += 1
            if doing != "ok":
                raise Failed(doing)
            if row is not None and row.letter is not None:
                self.resolve(sent.key)
            return ("completed", row.attempts + 1 if row else 1)

        try:
            return (*self.tx(act, works=True), *beside)
        except Failed as failed:
            return (*self.verdict(sent, failed.kind), *beside)

    def runs(self, sent: Sent) -> bool:
        """Would its handler run now?"""
        trial = Laws(self.world.copy())
        if not trial.take(sent, "done"):
            return False
        row = trial.row_of(sent, sent.generation)
        if sent.generation is not None and row is None:
            return False
        try:
            trial.refuse_late(sent, row)
        except Failed:
            return False
        return True

    def refuse_late(self, sent: Sent, row: Row | None) -> None:
        if sent.expires is not None and self.world.now >= sent.expires:
            raise Failed("expired")
        if row is not None and row.letter is not None:
            return
        if (row.created if row else self.world.now) - sent.sent_at > LIMITS.too_old:
            raise Failed("too_old")

    def wait_for(self, sent: Sent, eta: float) -> Said | None:
        world = self.world

        def act() -> Said:
            if eta <= world.now:
                return ("now",)
            row = self.own(sent)
            self.put_off(sent, row, eta - world.now, row.attempts if row else 0, 0)
            return ("deferred", 0, False)

        try:
            said = self.tx(act)
        except NotOurs:
            return self.tx(lambda: self.settle(sent))
        return None if said == ("now",) else said

    def own(self, sent: Sent) -> Row | None:
        if not self.take(sent, "waiting"):
            raise NotOurs
        if sent.generation is None:
            return None
        row = self.row_of(sent, sent.generation)
        if row is None:
            raise NotOurs
        return row

    def put_off(
        self,
        sent: Sent,
        row: Row | None,
        delay: float,
        attempts: int,
        failures: int,
        unready: float | None = None,
    ) -> None:
        world = self.world
        created, letter = (row.created, row.letter) if row else (world.now, None)
        if row is None:
            self.evict(sent.key, sent.content)
        if row is None and (left := world.rows.get(sent.key)) is not None:
            letter = left.letter
        world.rows[sent.key] = Row(
            world.now + delay,
            created,
            sent.content,
            world.fresh(),
            attempts,
            failures=failures,
            letter=letter,
            unready=unready,
        )

    def verdict(self, sent: Sent, kind: str, final: str | None = None) -> Said:
        world = self.world

        def act() -> Said:
            row = self.own(sent)
            attempt = (row.attempts if row else 0) + 1
            failures = (row.failures if row else 0) + 1
            unready = row.unready if row else None
            if kind == "not_ready" and unready is None:
                unready = world.now
            since = unready if kind == "not_ready" else row.created if row else world.now
            waited = world.now - (world.now if since is None else since)
            reason, delay, spends = (final, 0.0, True) if final else decide(kind, attempt, waited)
            if reason is None:
                self.put_off(sent, row, delay, attempt if spends else attempt - 1, failures, unready)
                return ("deferred", attempt, spends)
            world.fences[sent.key].state = "dead"
            if row is not None or not self.evict(sent.key, sent.content):
                world.rows.pop(sent.key, None)
            self.bury(sent, reason, attempt, row.deliveries if row else 1, failures)
            return ("dead", reason, attempt)

        try:
            return self.tx(act)
        except NotOurs:
            return self.tx(lambda: self.settle(sent))

    def bury(self, sent: Sent, reason: str, attempts: int, deliveries: int, failures: int) -> None:
        letters = self.world.letters
        number = self.world.open_letter(sent.key)
        if number is None:
            letters.append(
                Letter(sent.key, sent.content, reason, attempts, deliveries, failures, audit=["dead_lettered"])
            )
            return
        again = letters[number]
        again.reason, again.attempts, again.deliveries = reason, attempts, deliveries
        again.failures += failures
        again.status = "pending_review"
        again.lineage.append("failed_again")
        again.audit.append("dead_lettered")

    def stand_aside(self, sent: Sent) -> Said:
        world = self.world
        if sent.generation is not None:
            row = self.row_of(sent, sent.generation)
            if row is None:
                return ("stale", False)
            if self.hold is None or self.hold.generation != row.generation:
                row.deliveries = max(row.deliveries - 1, 0)
                row.leased, row.available = None, world.now + LIMITS.busy_delay
        elif sent.key not in world.rows:
            world.rows[sent.key] = Row(world.now + LIMITS.busy_delay, world.now, sent.content)
        return ("deferred", 0, False)

    def rekey(self, sent: Sent, own: str) -> Said:
        world, to = self.world, Key(sent.job_id, own)

        def act() -> Said:
            row = self.row_of(sent, sent.generation or 0)
            if row is None:
                return self.settle(sent)
            del world.rows[sent.key]
            world.fences.pop(sent.key, None)
            letter = row.letter
            if to in world.rows and world.rows[to].content != row.content:
                self.file(to, row.content)
                self.supersede(letter)
                return ("deferred", row.attempts, False)
            if letter is not None and world.letters[letter].is_open:
                if world.open_letter(to) is None:
                    world.letters[letter].key = to
                else:
                    closed = world.letters[letter]
                    closed.resolved = world.now
                    closed.lineage.append("superseded")
            if to not in world.rows:
                unready = None if row.unready is None else world.now + row.unready - row.created
                world.rows[to] = Row(
                    world.now,
                    world.now,
                    row.content,
                    attempts=row.attempts,
                    failures=row.failures,
                    letter=letter,
                    unready=unready,
                )
            elif world.rows[to].letter is None:
                world.rows[to].letter = letter
            return ("deferred", row.attempts, False)

        return self.tx(act)

    def followed(self, sent: Sent) -> Said:
        """What comes after the job has been sent: its row, if any, goes."""
        return self.tx(lambda: self.settle(sent._replace(goes_on=False)))

    # -- the inbox, letters, prune ---------------------------------------------------------------------------------

    def enqueue(self, sent: Sent, delay: float, commits: bool) -> Said:
        world, key = self.world, sent.key
        fence, row = world.fences.get(key), world.rows.get(key)
        known = [one.content for one in (fence, row) if one is not None and one.content is not None]
        decided = fence is not None and fence.state in ("done", "dead")
        if (decided or row is not None) and known and known[0] != sent.content:
            raise Refused("ConflictingJob")
        if fence is not None and decided:
            return (fence.state,)
        if row is not None:
            return ("waiting",)
        if commits:
            world.rows[key] = Row(world.now + delay, world.now, sent.content)
        return ("enqueued",)

    def lease(self) -> Said:
        """What the relay has in hand after its first transaction: the keys that are due."""
        world = self.world

        def act() -> Said:
            due = [key for key, row in world.rows.items() if (row.leased or row.available) <= world.now]
            for key in due:
                row = world.rows[key]
                row.leased = world.now + min(LEASE * 2**row.dispatches, LONGEST_LEASE)
                row.deliveries += 1 if row.dispatches == 0 else 0
                row.dispatches += 1
            return tuple(due)

        return self.tx(act)

    def release(self, keys: list[Key], delay: float) -> Said:
        def act() -> Said:
            for key in keys:
                row = self.world.rows[key]
                row.leased = self.world.now + delay if delay else None
                row.deliveries -= 1 if row.dispatches == 1 else 0
                row.dispatches -= 1
            return ()

        return self.tx(act)

    def replay(self, number: int, discards: bool) -> Said:
        world = self.world

        def act() -> Said:
            letter = world.letters[number]
            if letter.gone:
                raise Refused("NoSuchLetter")
            state = world.fences.setdefault(letter.key, Fence("dead", world.now, None)).state
            again = state == "waiting" and letter.key in world.rows
            if not letter.is_open:
                raise Refused("LetterClosed")
            if again:
                raise Refused("AlreadyReplayed")
            if not self.evict(letter.key, letter.content):
                world.rows.pop(letter.key, None)
            if state == "done":
                self.resolve(letter.key)
                letter.audit.append("resolved")
                return ("resolved",)
            if discards:
                letter.status, letter.resolved = "discarded", world.now
                letter.audit.append("discarded")
                return ("discarded",)
            world.fences[letter.key] = Fence("waiting", world.now, world.fences[letter.key].content)
            world.rows[letter.key] = Row(world.now, world.now, letter.content, world.fresh(), letter=number)
            letter.status, letter.replays = "replayed", letter.replays + 1
            letter.lineage.append("replayed")
            letter.audit.append("replayed")
            return ("replayed",)

        return self.tx(act)

    def prune(self) -> Said:
        """All batches at once; a fault may strike between two of them, so each is a transaction."""
        world = self.world

        def fences() -> Said:
            old = [
                key
                for key, fence in world.fences.items()
                if world.now - fence.at > FENCE_TTL and key not in world.rows and world.open_letter(key) is None
            ]
            for key in old:
                del world.fences[key]
            return (len(old),)

        def letters() -> Said:
            old = [
                letter
                for letter in world.letters
                if not letter.gone and letter.resolved is not None and world.now - letter.resolved > LETTER_TTL
            ]
            for letter in old:
                letter.gone = True
            return (len(old),)

        return (*self.tx(fences), *self.tx(letters))


def decide(kind: str, attempt: int, waited: float) -> tuple[str | None, float, bool]:
    """The letter's reason or None, the delay, and whether the try is spent."""
    if kind in HOPELESS:
        return HOPELESS[kind], 0.0, True
    if kind == "not_ready":
        left = NOT_READY_DEADLINE - waited
        return ("not_ready", 0.0, True) if left <= 0 else (None, min(NOT_READY_WAIT, left), False)
    if attempt >= TRIES:
        return EXHAUSTED[kind], 0.0, True
    return None, {"retry_later": LATER, "unknown_task": SOON}.get(kind, WAIT), True


def faulty(law: Callable[[Laws], Said], world: World, kind: str, at_work: bool) -> list[tuple[World, Said, Fault]]:
    """Every end that a fault of this kind can lead to, by the transaction at which it strikes."""
    ends = []
    for at in range(20):
        fault, after = Fault(kind, at, at_work), world.copy()
        laws = Laws(after, fault)
        try:
            said = law(laws)
        except Died:
            said = ("died",)
        except Away:
            said = ("away",)
        except Refused as refused:
            said = ("refused", str(refused))
        if fault.fired:
            ends.append((after, said, fault))
        elif laws.transactions <= at:
            break
    return ends
