"""The first check: can the settings be read at all?"""

from collections.abc import Iterator

from harness.worker.check.facts import Facts
from harness.worker.check.finding import Found, Start, Verdict, check


@check(
    "settings",
    Verdict.broken,
    Start.refuses,
    about="every `harness_…` setting: unknown, misspelt, of the wrong kind",
    means="Nothing can run with them.",
    do="Correct them; nothing else was looked at.",
)
def settings(facts: Facts) -> Iterator[Found]:
    """The facts hold settings only if they could be read."""
    yield from ()
