"""The machine: every rule is one thing that can happen to the jobs of a service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harness.relay.relay import Unroutable
from harness.store.database import DatabaseAway
from harness.store.inbox import InboxRow
from tests.machine.compare import Content, Known, View, broken
from tests.machine.faults import Plan
from tests.machine.laws import Away, Died, Laws, Refused, Said, faulty
from tests.machine.place import Place
from tests.machine.world import FENCE_TTL, LIMITS, UNIT, Key, Sent, World

JOBS = (("1", "pay"), ("2", "pay"), ("3", "mail"), ("4", "pay"), ("5", "mail"))
#: Between a job's first message and its last one: so much longer does a fence live than a message that is not too old.
LONG = FENCE_TTL - LIMITS.too_old
some = st.integers(0, 30)
doing = st.sampled_from(["ok", "ok", "transient", "transient", "permanent", "not_ready", "retry_later", "invalid"])
#: Of one id, the second is no duplicate of the first.
contents = st.sampled_from([0, 0, 1])
verdicts = st.sampled_from(["crashed", "timed_out", "unknown_task", "undecodable"])
faults = st.builds(
    Plan,
    st.sampled_from(["die", "lose", "unanswered"]),
    st.sampled_from([0, 1, 1, 2, 2, 2, 3, 4, 5, 6, 8]),
)
Law = Callable[[Laws], Said]


class Machine(RuleBasedStateMachine):
    """`url`: a migrated database with the table of effects. `steps` and `seen` are of all examples together."""

    url: ClassVar[str]
    steps: ClassVar[int] = 0
    seen: ClassVar[Counter[str]] = Counter()
    found: ClassVar[list[str]] = []

    def __init__(self) -> None:
        super().__init__()
        self.place, self.world, self.known = Place(self.url), World(), Known()
        self.view: View = [[], [], [], [], []]
        self.broker: list[Sent] = []
        self.jobs: list[Content] = []
        self.lives: dict[str, tuple[int, float]] = {}
        self.pruned: set[Key] = set()
        self.pruned_at = 0.0

    def teardown(self) -> None:
        try:
            self.comes_to_rest()
        finally:
            self.place.close()

    # -- one thing happens, and is compared --------------------------------------------------------------------------

    def act(self, real: Callable[[], Said], law: Law, plan: Plan | None = None) -> Said:
        """Do it, and see whether the laws allow what was said and what is committed now."""
        type(self).steps += 1
        with self.place.wrong(plan):
            try:
                said = real()
            except Died:
                said = ("died",)
            except DatabaseAway:
                said = ("away",)
        if plan is not None and plan.fired:
            self.seen[f"fault {plan.kind}{' at work' if plan.at_work else ''}"] += 1
            ends = [(world, told) for world, told, _ in faulty(law, self.world, plan.kind, plan.at_work)]
        else:
            ends = [self.without_fault(law)]
        self.seen[" ".join(map(str, said[:2]))] += 1
        view = self.view = self.place.view()
        differences = []
        for world, told in ends:
            wrong = self.known.differs(world, view)
            if told != said:
                wrong.append(f"said {said}, wanted {told}")
            if not wrong:
                self.world = world
                self.known.learn(world, view)
                return said
            differences.append("\n  ".join(wrong))
        self.found.append("the laws do not allow this:\n  " + "\n or\n  ".join(dict.fromkeys(differences)))
        raise AssertionError(self.found[-1])

    def without_fault(self, law: Law) -> tuple[World, Said]:
        after = self.world.copy()
        try:
            return after, law(Laws(after))
        except Refused as refused:
            return after, ("refused", str(refused))
        except Away:
            return after, ("away",)

    # -- producers -------------------------------------------------------------------------------------------------

    def job(self, which: int) -> tuple[str, str]:
        """An id and its task. One that was first used so long ago that its fence may go is not used again: a producer
        who does so has a new job under an old id, and no database can tell."""
        number, task = JOBS[which % len(JOBS)]
        life, first = self.lives.get(number, (0, -LONG))
        if self.world.now - first >= LONG:
            life, first = self.lives[number] = (life + 1, self.world.now)
        return f"{self.place.service}-{number}.{life}", task

    def message(self, which: int, eta: int | None, expires: int | None, goes_on: bool, content: int) -> Sent:
        job_id, task = self.job(which)
        now = self.world.now
        return Sent(
            job_id,
            task,
            self.place.own(task),
            eta=None if eta is None else now + eta * UNIT,
            expires=None if expires is None else now + (expires - 0.5) * UNIT,
            sent_at=now,
            goes_on=goes_on,
            content=content,
        )

    @rule(
        which=some,
        eta=st.none() | st.integers(0, 3),
        expires=st.none() | st.integers(0, 3),
        goes_on=st.booleans(),
        content=contents,
    )
    def send(self, which: int, eta: int | None, expires: int | None, goes_on: bool, content: int) -> None:
        sent = self.message(which, eta, expires, goes_on, content)
        self.broker.append(sent)
        self.jobs.append((sent.job_id, sent.content))

    @rule(which=some, delay=st.integers(0, 3), commits=st.booleans(), content=contents)
    def enqueue(self, which: int, delay: int, commits: bool, content: int) -> None:
        sent = self.message(which, None, None, False, content)
        real = partial(self.place.enqueue, sent, delay * UNIT, commits)
        said = self.act(real, lambda laws: laws.enqueue(sent, delay * UNIT, commits))
        if commits and said == ("enqueued",):
            self.jobs.append((sent.job_id, sent.content))

    @precondition(lambda self: self.broker)
    @rule(which=some, redelivered=st.booleans())
    def is_there_twice(self, which: int, redelivered: bool) -> None:
        sent = self.broker[which % len(self.broker)]
        self.broker.append(sent._replace(redelivered=redelivered or sent.redelivered))

    @precondition(lambda self: self.unmarked())
    @rule(which=some, redelivered=st.booleans())
    def is_there_with_another_content(self, which: int, redelivered: bool) -> None:
        """A producer that uses one id for two things."""
        found = self.unmarked()
        sent = self.broker[found[which % len(found)]]
        other = sent._replace(content=1 - sent.content, redelivered=redelivered)
        self.broker.append(other)
        self.jobs.append((other.job_id, other.content))

    # -- workers ---------------------------------------------------------------------------------------------------

    def take(self, which: int) -> Sent:
        return self.broker.pop(which % len(self.broker))

    def hand(self, sent: Sent, does: str, plan: Plan | None = None, revoked: bool = False) -> Said:
        """Deliver; a copy whose worker died is with the broker again."""
        own = self.place.own(sent.task)
        said = self.act(
            lambda: self.place.deliver(sent, does, revoked), lambda laws: laws.deliver(sent, own, does, revoked), plan
        )
        if said == ("died",):
            self.broker.append(sent._replace(redelivered=True))
        return said

    def follow(self, sent: Sent, said: Said) -> None:
        """What comes after the job is sent, and its row goes."""
        if sent.goes_on and sent.consumer == self.place.own(sent.task) and said[0] in ("completed", "duplicate"):
            try:
                self.act(lambda: self.place.followed(sent), lambda laws: laws.followed(sent))
            except Exception as error:
                raise AssertionError(f"after {said}") from error

    @precondition(lambda self: self.broker)
    @rule(
        which=some,
        does=doing,
        acked=st.booleans(),
        follows=st.booleans(),
        revoked=st.sampled_from([False] * 4 + [True]),
    )
    def deliver(self, which: int, does: str, acked: bool, follows: bool, revoked: bool) -> None:
        sent = self.take(which)
        said = self.hand(sent, does, revoked=revoked)
        if follows:
            self.follow(sent, said)
        if not acked or (not follows and said[0] in ("completed", "duplicate") and sent.goes_on):
            self.broker.append(sent._replace(redelivered=True))

    @precondition(lambda self: self.broker)
    @rule(which=some, does=doing, plan=faults)
    def deliver_with_a_fault(self, which: int, does: str, plan: Plan) -> None:
        self.hand(self.take(which), does, plan)

    @precondition(lambda self: self.broker)
    @rule(which=some, does=doing, at=st.integers(0, 9), kind=st.sampled_from(["crashed", "timed_out"]))
    def child_dies(self, which: int, does: str, at: int, kind: str) -> None:
        """The parent lives, and has the verdict recorded: also on a child that died after its commit."""
        sent = self.take(which)
        own = self.place.own(sent.task)
        plan = Plan("die", at)
        self.act(lambda: self.place.deliver(sent, does), lambda laws: laws.deliver(sent, own, does), plan)
        self.parent_records(sent, kind)

    def parent_records(self, sent: Sent, kind: str, plan: Plan | None = None, message: Sent | None = None) -> None:
        """`message` is what the broker has of it, where the parent reads it otherwise."""
        said = self.act(lambda: self.place.record(sent, kind), lambda laws: laws.record(sent, kind), plan)
        if said == ("died",):
            self.broker.append((message or sent)._replace(redelivered=True))

    @precondition(lambda self: self.broker)
    @rule(which=some, kind=verdicts, plan=st.none() | faults)
    def record(self, which: int, kind: str, plan: Plan | None) -> None:
        """A verdict of the parent; for an unknown task under the name that the message says."""
        message = sent = self.take(which)
        if kind in ("unknown_task", "undecodable"):
            sent = sent._replace(consumer=f"{self.place.service}/{sent.task}", goes_on=True)
        self.parent_records(sent, kind, plan, message)

    @precondition(lambda self: self.may_be_met())
    @rule(which=some, does=doing, rival=doing, same=st.booleans(), redelivered=st.booleans())
    def side_by_side(self, which: int, does: str, rival: str, same: bool, redelivered: bool) -> None:
        """A second copy comes while the first one is at work, and waits too long for it."""
        found = self.may_be_met()
        one = self.broker.pop(found[which % len(found)])
        two = one._replace(redelivered=redelivered or one.redelivered)
        if not same and self.may_meet_another(one):
            two = two._replace(content=1 - one.content)
            self.jobs.append((two.job_id, two.content))
        own = self.place.own(one.task)
        heard: list[Said] = []

        def real() -> Said:
            said = self.place.deliver(one, does, inside=lambda: heard.append(self.place.deliver(two, rival)))
            return (*said, *heard)

        def law(laws: Laws) -> Said:
            return laws.deliver(one, own, does, rival=lambda beside: beside.deliver(two, own, rival))

        self.act(real, law)
        self.seen["side by side" if one.content == two.content else "side by side, another content"] += len(heard)
        if not heard and two.content != one.content:
            self.broker.append(two)

    @precondition(lambda self: self.unmarked())
    @rule(which=some)
    def stands_aside_late(self, which: int) -> None:
        """A producer's copy has waited too long for a fence, which is decided just before the copy gives up."""
        found = self.unmarked()
        sent = self.broker.pop(found[which % len(found)])
        self.act(lambda: self.place.stand_aside(sent), lambda laws: laws.tx(lambda: laws.stand_aside(sent)))

    # A producer's copy that finds the fence held, and another content in the inbox, waits until the fence has decided:
    # here for ever, while the first copy is at work.

    def unmarked(self) -> list[int]:
        """The producers' copies that would not wait so."""
        rows = self.world.rows
        return [
            n
            for n, sent in enumerate(self.broker)
            if sent.generation is None and (sent.key not in rows or rows[sent.key].content == sent.content)
        ]

    def may_be_met(self) -> list[int]:
        """The copies that a worker which knows their tasks may work on, beside another copy that would not wait so."""
        known = {n for n, sent in enumerate(self.broker) if sent.consumer == self.place.own(sent.task)}
        return sorted(known & {*self.unmarked(), *(n for n in known if self.broker[n].generation is not None)})

    def may_meet_another(self, one: Sent) -> bool:
        """Would a copy with another content beside this one not wait so?"""
        return one.generation is None and not one.suspicious and one.key not in self.world.rows

    # -- relay, time, people ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.rows)
    @rule(
        at=st.integers(0, 2),
        how=st.sampled_from(["", "", "dies", "refused", "sent and refused", "unroutable"]),
    )
    def relay(self, at: int, how: str) -> None:
        """One step; at one row something goes wrong."""
        order: list[Key] = []

        def publish(row: InboxRow) -> None:
            number = len(order)
            order.append(Key(row.job_id, row.consumer))
            if number == at and how == "dies":
                raise Died
            if number != at or how in ("", "sent and refused"):
                self.broker.append(self.place.sent_by_relay(row))
            if number == at and how == "unroutable":
                raise Unroutable("no queue")
            if number == at and how in ("refused", "sent and refused"):
                raise ConnectionError("refused")

        def real() -> Said:
            try:
                return ("sent", self.place.relay(publish))
            except ConnectionError:
                return ("refused",)

        def law(laws: Laws) -> Said:
            due = laws.lease()
            assert len(order) <= len(due)
            assert set(order) <= set(due), "the relay sends what is due, and nothing else"
            if len(order) <= at or not how:
                return ("sent", len(due))
            if how == "dies":
                raise Died
            if how == "unroutable":
                laws.release([order[at]], 15.0)
                return ("sent", len(due))
            # Whose fault it is shows when they go one at a time.
            laws.release([key for key in due if key not in order[:at]], 0.0)
            return ("refused",)

        def law_that_dies(laws: Laws) -> Said:
            try:
                return law(laws)
            except Died:
                return ("died",)

        self.act(real, law_that_dies)

    @rule(units=st.sampled_from([1, 1, 2, 3, 5, 30, 60, 100]))
    def time_passes(self, units: int) -> None:
        self.place.go_on(units * UNIT)
        self.world.now += units * UNIT

    @precondition(lambda self: self.world.now - self.pruned_at >= 30 * UNIT)
    @rule(plan=st.none() | faults)
    def prune(self, plan: Plan | None) -> None:
        self.pruned_at = self.world.now
        fences, gone = dict(self.world.fences), [letter.gone for letter in self.world.letters]
        self.act(self.place.prune, lambda laws: laws.prune(), plan)
        self.pruned |= fences.keys() - self.world.fences.keys()
        self.pruned |= {x.key for x, before in zip(self.world.letters, gone, strict=True) if x.gone and not before}

    @precondition(lambda self: self.world.letters)
    @rule(which=some, discards=st.sampled_from([False, False, True]), plan=st.none() | faults)
    def review(self, which: int, discards: bool, plan: Plan | None) -> None:
        """A person replays a letter, or discards it."""
        number = which % len(self.world.letters)
        letter_id = self.known.letters[number]
        self.act(lambda: self.place.replay(letter_id, discards), lambda laws: laws.replay(number, discards), plan)

    # -- the promises ----------------------------------------------------------------------------------------------

    @invariant()
    def promises(self) -> None:
        at_broker = {(sent.job_id, sent.content) for sent in self.broker}
        wrong = broken(self.view, self.jobs, at_broker, self.pruned)
        self.found.extend(wrong)
        assert not wrong, "\n".join(wrong)

    def comes_to_rest(self) -> None:
        """From everywhere: with healthy workers, every job ends as done or as a letter, and nothing is left over."""
        for _ in range(12):
            while self.broker:
                sent = self.take(0)
                self.follow(sent, self.hand(sent, "ok"))
            if not self.world.rows:
                break
            self.time_passes(5)
            self.relay(9, "")
        assert not self.world.rows, f"rows are left: {self.world.rows}"
        assert not self.broker
        self.promises()
        for letter in self.world.letters:
            assert not letter.is_open or letter.status == "pending_review", letter
