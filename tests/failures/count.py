"""What a case has left behind, counted: jobs with an effect, dead letters, what waits; and so what is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.failures.case import Case
from tests.failures.place import Place

#: Plain Celery is given up when nothing has happened for so long, and after so many seconds at all.
QUIET, LONGEST = 5.0, 30.0
#: Reasons of letters that are about one copy and not about its job, which may well be done.
OF_A_COPY = "('too_old', 'conflict')"


@dataclass(frozen=True)
class Row:
    """A line of the table. `left`: messages with the broker. `fault`: what was not as expected, in words."""

    case: Case
    side: str
    broker: str
    sent: int = 0
    effects: int = 0
    letters: int = 0
    waiting: int = 0
    lost: int = 0
    doubled: int = 0
    without_evidence: int = 0
    deliveries: int = 0
    worker_ended: bool = False
    fault: str = ""
    seconds: float = 0.0
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def bad(self) -> bool:
        return bool(self.lost or self.doubled or self.without_evidence or self.fault)


@dataclass
class Counter:
    """Counts what `case` adds to what stands in the place when it begins."""

    place: Place
    case: Case

    def __post_init__(self) -> None:
        self.first_effect = self._last("ledger")
        self.first_letter = self._last("core.dead_letters")
        self.first_delivery = self.place.deliveries()
        self.began = time.monotonic()

    def _last(self, table: str) -> int:
        return int(self.place.state.sql(f"SELECT coalesce(max(id), 0) FROM {table}")[0][0])

    def effects(self) -> dict[str, int]:
        """Effects of each job and task."""
        rows = self.place.state.sql(
            "SELECT job_id, task, count(*) AS n FROM ledger WHERE id > :first GROUP BY 1, 2", first=self.first_effect
        )
        return {f"{row.task} {row.job_id}": row.n for row in rows}

    def letters(self) -> dict[str, int]:
        """How many open letters, by reason."""
        rows = self.place.state.sql(
            "SELECT reason, count(*) AS n FROM core.dead_letters WHERE id > :first AND resolved_at IS NULL GROUP BY 1",
            first=self.first_letter,
        )
        return {row.reason: row.n for row in rows}

    def contradictions(self) -> int:
        """Jobs with an effect and an open letter that says that they have none."""
        rows = self.place.state.sql(
            "SELECT count(DISTINCT l.job_id) FROM ledger l JOIN core.dead_letters d ON d.job_id = l.job_id "
            f"AND d.task = l.task WHERE l.id > :first AND d.resolved_at IS NULL AND d.reason NOT IN {OF_A_COPY}",
            first=self.first_effect,
        )
        return int(rows[0][0])

    # -- waiting for the end ---------------------------------------------------------------------------------------

    def harness_ends(self) -> bool:
        """Wait until all is as expected and nothing is on its way; False if it does not become so."""

        def as_expected() -> bool:
            return (
                len(self.effects()) >= self.case.effects
                and sum(self.letters().values()) >= sum(self.case.letters.values())
                and self.place.inbox() == self.case.waiting
                and self.place.left() == 0
            )

        return _becomes(as_expected, self.case.seconds)

    def is_quiet(self) -> bool:
        """Wait until nothing has been delivered for a second: RabbitMQ does not say what is in a worker's hands."""
        last, since = self.place.deliveries(), time.monotonic()
        while time.monotonic() - since < 1.0:
            time.sleep(0.1)
            if (now := self.place.deliveries()) != last and time.monotonic() - self.began < 2 * self.case.seconds:
                last, since = now, time.monotonic()
        return True

    def plain_ends(self) -> bool:
        """Wait until each job has its effect, or nothing happens any more."""
        last, since = (-1, -1), time.monotonic()
        deadline = since + LONGEST + self.case.seconds / 4
        while time.monotonic() < deadline:
            now = (self.place.deliveries(), sum(self.effects().values()))
            if now != last:
                last, since = now, time.monotonic()
            done = len(self.effects()) >= self.case.sent and self._is_empty()
            if time.monotonic() - since > (1.0 if done else QUIET):
                return done
            time.sleep(0.1)
        return False

    def _is_empty(self) -> bool:
        try:
            return self.place.left() == 0
        except Exception:  # the broker of the case is away for a moment
            return False

    def row(self, left: int, ended: bool, fault: str) -> Row:
        """`left`: how many messages were with the broker when the worker was stopped."""
        place, case = self.place, self.case
        effects = self.effects()
        letters = self.letters() if place.harness else {}
        waiting = place.inbox() if place.harness else left
        missing = max(0, case.sent - len(effects) - sum(letters.values()) - waiting)
        evidence = min(missing, sum(case.letters.values())) if place.harness else 0
        doubled = sum(count - 1 for count in effects.values()) + (self.contradictions() if place.harness else 0)
        return Row(
            case,
            place.side,
            place.broker,
            sent=case.sent,
            effects=sum(effects.values()),
            letters=sum(letters.values()),
            waiting=waiting,
            lost=missing - evidence,
            doubled=doubled,
            without_evidence=evidence,
            deliveries=place.deliveries() - self.first_delivery,
            worker_ended=ended,
            fault=fault or (self._unexpected(effects, letters, waiting) if place.harness else ""),
            seconds=time.monotonic() - self.began,
            reasons=letters,
        )

    def _unexpected(self, effects: dict[str, int], letters: dict[str, int], waiting: int) -> str:
        case = self.case
        wrong = []
        if sum(effects.values()) != case.effects:
            wrong.append(f"{sum(effects.values())} effects instead of {case.effects}")
        if letters != dict(case.letters):
            wrong.append(f"letters {letters} instead of {dict(case.letters)}")
        if waiting != case.waiting:
            wrong.append(f"{waiting} waiting instead of {case.waiting}")
        return ", ".join(wrong)


def _becomes(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if condition():
                return True
        except Exception:  # a server of the case is away for a moment
            pass
        time.sleep(0.1)
    return False
