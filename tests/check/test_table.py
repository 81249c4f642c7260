"""One verdict for each check, and the page says the same as the code."""

from harness.worker.check import CHECKS, Start, Verdict
from tests.check.table import table, written


def test_the_page_has_the_checks_as_they_are() -> None:
    assert written() == table(), "run: python -m tests.check.table"


def test_the_verdicts_and_the_start_fit() -> None:
    for check in CHECKS.values():
        assert check.about
        assert check.start is not Start.refuses or check.verdict is Verdict.broken, check.name
        assert (check.start is Start.corrects) <= (check.verdict is Verdict.corrected), check.name
        assert (check.mend is not None) == (check.start is Start.corrects), check.name
        assert check.part in ("configuration", "database", "redis", "rabbitmq")
        if check.verdict is not Verdict.ok:
            assert check.means.endswith("."), check.name
            assert check.do, check.name
