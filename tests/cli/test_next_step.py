"""`dead-letters show` ends its facts with what to do next, whatever the reason."""

from __future__ import annotations

import pytest

from harness.cli.next_step import RUNBOOK
from harness.core.reason import Reason
from tests.cli.conftest import Shell
from tests.docs.pages import DOCS
from tests.letters import Place


def said(shell: Shell, letter_id: int) -> str:
    """The line of `show`, '' for none."""
    lines = shell("dead-letters", "show", letter_id).stdout.splitlines()
    return next((line.split(None, 1)[1] for line in lines if line.startswith("  next ")), "")


@pytest.mark.parametrize("reason", list(Reason))
def test_each_reason_has_its_line_and_its_place_in_the_runbook(place: Place, shell: Shell, reason: Reason) -> None:
    letter_id = place.dead("order-1", reason=reason)
    line = said(shell, letter_id)
    assert line.startswith("→ ")
    assert f"replay {letter_id}" in line
    assert f"discard {letter_id} --reason" in line
    assert line.endswith(f"; {RUNBOOK}#{reason}")
    page = (DOCS / "howto" / "runbook.md").read_text(encoding="utf-8")
    assert f'id="{reason}"' in page or f"### {reason}\n" in page


def test_a_letter_that_is_being_tried_again_or_has_succeeded_or_is_closed(place: Place, shell: Shell) -> None:
    letter_id = place.dead("order-1")
    shell("dead-letters", "replay", letter_id)
    assert said(shell, letter_id) == "→ it is being tried again: harness inbox order-1"
    place.run("DELETE FROM core.inbox")
    place.done("order-1")
    assert "replay 1 closes the letter" in said(shell, letter_id)
    shell("dead-letters", "replay", letter_id)
    other = place.dead("order-2", ordering_key="7")
    assert "ordering key   7\n" in shell("dead-letters", "show", other).stdout
    shell("dead-letters", "discard", other, "--reason", "no need")
    assert said(shell, other) == ""
