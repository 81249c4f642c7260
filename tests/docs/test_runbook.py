"""The runbook, followed at night: each of its commands is run, in their order, and prints what the page shows."""

import pwd
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from click.shell_completion import split_arg_string

from harness.core.reason import Reason
from tests.cli.conftest import Shell
from tests.docs.pages import DOCS, alike, blocks
from tests.letters import Place

PAGE = DOCS / "howto" / "runbook.md"
LETTERS = (
    ("order-41", "billing.charge", Reason.exhausted, "bank.Timeout", "no answer from the bank", 5, 900),
    ("order-42", "billing.charge", Reason.exhausted, "bank.Timeout", "no answer from the bank", 5, 840),
    ("order-43", "billing.charge", Reason.exhausted, "bank.Timeout", "no answer from the bank", 5, 720),
    ("order-44", "billing.credit", Reason.invalid_payload, "harness.core.errors.InvalidPayload",
     "the arguments do not fit the handler: points: Input should be greater than 0", 1, 540),
    ("export-7", "billing.export", Reason.timed_out, "TimeLimitExceeded",
     "the hard time limit of 300 s was exceeded", 5, 250),
)  # fmt: skip


@pytest.fixture
def place(database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """The night of the page."""
    made = Place(database)
    for job_id, task, reason, error, text, tries, age in LETTERS:
        letter_id = made.dead(job_id, task=task, reason=reason, error=error)
        made.run(
            "UPDATE core.dead_letters SET error_message = :text, attempts = :tries,"
            " created_at = now() - make_interval(secs => :age) WHERE id = :id",
            text=text, tries=tries, age=age, id=letter_id,
        )  # fmt: skip
    made.wait("order-45", task="billing.charge")
    made.run("UPDATE core.inbox SET attempts = 3, queue = 'billing', available_at = now() + interval '475 seconds'")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="ann"))
    yield made
    made.database.dispose()


def test_the_commands(place: Place) -> None:
    shell = Shell(place.url)
    todo = blocks(PAGE)
    compared = 0
    for block, after in zip(todo, [*todo[1:], None], strict=True):
        if block.language != "sh":
            continue
        [line] = block.lines
        words = split_arg_string(line)
        assert words[:4] == ["celery", "-A", "billing", "harness"]
        out = alike(shell(*words[4:]).stdout)
        if after is None or after.language != "text":
            continue
        compared += 1
        shown = alike(after.text)
        if "show" in words:
            assert_in_order(shown.splitlines(), out.splitlines())
        else:
            assert out == shown
    assert compared >= 8
    assert [place.letter(n).status for n in (1, 2, 3, 4, 5)] == [*["replayed"] * 3, "discarded", "pending_review"]
    shell.close()


def assert_in_order(shown: list[str], out: list[str]) -> None:
    """An excerpt: every line of it is a line of the output, in the same order."""
    rest = iter(out)
    for line in shown:
        assert any(other == line for other in rest), f"{line!r} is not in the output, or not there:\n" + "\n".join(out)


def test_every_reason_is_decided() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text.split("## Decide by the reason")[1].split("\n## ")[0]
    named = {line.split("`")[1] for line in table.splitlines() if line.startswith("| `")}
    assert named == {str(reason) for reason in Reason}


def test_the_messages_that_it_explains(place: Place) -> None:
    """What "When nothing works" quotes is what the commands say."""
    text = PAGE.read_text(encoding="utf-8")
    shell = Shell(place.url)
    shell("dead-letters", "replay", 1)
    again = shell("dead-letters", "replay", 1, code=1).stderr
    assert "refused: Letter 1 is being tried again" in again
    assert "refused: Letter … is being tried again" in text
    assert "no letter matches" in shell("dead-letters", "list", "--task", "none").stdout
    shell.close()
    away = Shell("postgresql://ann:x@127.0.0.1:1/none", outage_hold=0.1)
    assert "PostgreSQL cannot be used at" in away("dead-letters", "list", code=1).stderr
    assert "PostgreSQL cannot be used at …" in text
