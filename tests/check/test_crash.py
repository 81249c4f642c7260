"""A check that fails itself: nobody knows whether the promise holds, and that is not passed over."""

import json

import pytest

from harness import Policy
from tests.check.doctor import Patient, named, patient, start


def never(state: object) -> bool:
    raise LookupError("no such state")


def add(harness: object) -> None:
    @harness.job(name="other", shared=False, policy=Policy(stop=never, reason="test"))  # type: ignore[attr-defined]
    def other() -> None: ...


def test_it_is_said_with_the_place_and_what_to_do_and_ends_with_1(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with patient(database, "memory://", jobs=add) as sick:
        result = sick.run()
        text = " ".join(result.stdout.split())
        assert result.exit_code == 1
        assert "UNKNOWN fence-ttl The check itself failed: LookupError: no such state (test_crash.py:" in text
        assert "in never) Whether a promise is broken here is not known. → Look at what it is about" in text
        report = json.loads(sick.run("--json").stdout)
        assert (report["ok"], report["counts"]["unknown"] > 0) == (False, True)
        assert _accepted(sick) == 0
        refused, lines = start(sick, caplog)
    assert refused == ""
    assert len(named(lines, "fence-ttl")) == 1


def _accepted(sick: Patient) -> int:
    return sick.run("--accept", "fence-ttl").exit_code
