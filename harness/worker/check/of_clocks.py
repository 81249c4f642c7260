"""Checks of the clocks: how far this machine's is from the database's."""

from collections.abc import Iterator

from harness.worker.check.facts import Facts
from harness.worker.check.finding import Found, Start, Verdict, check


@check(
    "clock",
    Verdict.broken,
    Start.refuses,
    part="database",
    about="the clocks of this machine and of PostgreSQL, `harness_window_margin`",
    means="When a message was sent is said by its sender's clock: one that is far off makes old messages young, and "
    "they could run a second time after their fence was pruned; or young ones too old to run.",
    do="Set the clocks by NTP.",
)
def clock(facts: Facts) -> Iterator[Found]:
    server = facts.server
    if abs(server.skew) - server.skew_error > facts.settings.window_margin / 2:
        yield f"This machine's clock is {_apart(server.skew)} of the database's."


@check(
    "clock-drift",
    Verdict.warning,
    Start.says,
    part="database",
    about="the clocks of this machine and of PostgreSQL",
    means="A countdown or an expiry that this machine gives to a job comes so much too early or too late.",
    do="Set the clocks by NTP.",
)
def clock_drift(facts: Facts) -> Iterator[Found]:
    server = facts.server
    off = abs(server.skew) - server.skew_error
    if 5.0 < off <= facts.settings.window_margin / 2:
        yield f"This machine's clock is {_apart(server.skew)} of the database's."


def _apart(skew: float) -> str:
    return f"{abs(skew):.1f} s {'ahead' if skew > 0 else 'behind'}"
