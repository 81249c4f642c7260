"""`dead-letters list | show | replay | discard`."""

from __future__ import annotations

import base64
import getpass
import json
from typing import Any

import pytest

from harness.core.message import Message
from harness.core.reason import Reason
from harness.store.processed_jobs import FenceState
from tests.cli.conftest import Shell
from tests.letters import Place


def test_list_shows_pending_letters_newest_first(place: Place, shell: Shell) -> None:
    first, second = place.dead("order-1"), place.dead("order-2", task="ship")
    shell("dead-letters", "discard", first, "--reason", "no need")
    third = place.dead("order-3")
    place.dead("order-4", service="shop")
    place.run("UPDATE core.dead_letters SET created_at = now() - interval '2 hours'")
    out = shell("dead-letters", "list").stdout
    assert out.splitlines() == [
        "id  age  reason     tries  task",
        f" {third}  2h   exhausted      5  pay",
        "    order-3: Timeout: no answer",
        f" {second}  2h   exhausted      5  ship",
        "    order-2: Timeout: no answer",
        "2 letters",
    ]
    assert shell("dead-letters", "list", "--limit", 1).stdout.splitlines()[-1] == "1 of 2 letters"
    assert [letter["id"] for letter in shell.json("dead-letters", "list", "--status", "all")] == [third, second, first]


def test_list_fits_a_narrow_terminal(place: Place, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    job_id = "01930c5e-7a51-7cc3-8f2e-0123456789ab"
    place.dead(job_id, task="billing.payments.credit_points_to_account", error="requests.exceptions.ConnectTimeout")
    place.run("UPDATE core.dead_letters SET error_message = repeat('long ', 50)")
    first = place.dead("a")
    shell("dead-letters", "replay", first)
    lines = shell("dead-letters", "list", "--status", "all").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[4] == f"    {job_id}: ConnectTimeout: {'long ' * 4}l…"
    assert lines[1].endswith("pay (replayed)")
    place.run("DELETE FROM core.inbox")
    place.dead("a", error="Refused")
    assert "pay (failed again after 1 replay)" in shell("dead-letters", "list").stdout


FILTERS: list[tuple[tuple[str, ...], set[str]]] = [
    (("--task", "ship"), {"b"}),
    (("--reason", "permanent"), {"c"}),
    (("--job-id", "a"), {"a"}),
    (("--tenant", "t1"), {"b", "c"}),
    (("--fingerprint", "f1f2f3f4"), {"a", "b", "c"}),
    (("--fingerprint", "other"), set()),
    (("--older", "2h"), {"a"}),
    (("--newer", "1h30m"), {"b", "c"}),
    (("--older", "2h", "--tenant", "t1"), set()),
    (("--status", "discarded"), {"d"}),
    (("--status", "replayed"), set()),
]


def _named(value: tuple[str, ...] | set[str]) -> str:
    return " ".join(sorted(value) if isinstance(value, set) else value) or "none"


@pytest.mark.parametrize(("words", "expected"), FILTERS, ids=_named)
def test_filters(place: Place, shell: Shell, words: tuple[str, ...], expected: set[str]) -> None:
    old = place.dead("a")
    place.dead("b", task="ship", tenant="t1")
    place.dead("c", reason=Reason.permanent, tenant="t1")
    shell("dead-letters", "discard", place.dead("d"), "--reason", "no need")
    place.run("UPDATE core.dead_letters SET created_at = now() - interval '3 hours' WHERE id = :id", id=old)
    found = shell.json("dead-letters", "list", *words)
    assert {letter["job_id"] for letter in found} == expected
    if words[0] != "--status":
        swapped = ["--dead-reason" if word == "--reason" else word for word in words]
        dry = shell.json("dead-letters", "discard", "--reason", "x", "--dry-run", *swapped, code=0 if expected else 3)
        assert dry["matched"] == len(expected)


def test_nothing_matches(place: Place, shell: Shell) -> None:
    assert "no letter matches" in shell("dead-letters", "list").stdout
    assert shell.json("dead-letters", "list") == []
    assert "no letter matches" in shell("dead-letters", "replay", "--task", "x", "--yes", code=3).stdout
    assert "has no letter 7" in shell("dead-letters", "show", 7, code=3).stderr


def test_show_says_everything(place: Place, shell: Shell) -> None:
    letter_id = place.dead("order-1", tenant="t1", ordering_key="k", sequence=41, correlation_id="corr")
    shell("dead-letters", "replay", letter_id, "--actor", "ann", "--note", "provider is back")
    place.run("DELETE FROM core.inbox")
    place.dead("order-1", error="Refused")
    out = shell("dead-letters", "show", letter_id).stdout
    for word in (
        "pay order-1", "pending_review", "exhausted", "corr", "t1", "k (sequence 41)", "billing/pay", "f1f2f3f4",
        "2 failures", "1 delivery since", "2026-01-01T10:00:00", "worker w1@host", "Timeout: no answer",
        "Refused: no answer",
        "Traceback …", '"account": 7', "sha256", "application/json", "payments", "failed_again",
        "replayed by ann: provider is back", "fence          dead",
    ):  # fmt: skip
        assert word in out, word
    assert out.count("Traceback …") == 1
    assert shell("dead-letters", "show", letter_id, "--tracebacks").stdout.count("Traceback …") == 2


def test_show_json_is_complete(place: Place, shell: Shell) -> None:
    body = b'\xff\x00 [[], {"account": NaN}]'
    sent = Message(body, "application/json", None, {"id": "a", "raw": b"\xff"}, {}, "payments")
    letter_id = place.dead("a", message=sent)
    shell("dead-letters", "discard", letter_id, "--reason", "no need", "--actor", "ann")
    shown = shell.json("dead-letters", "show", letter_id)
    assert base64.b64decode(shown["message"]["body_base64"]) == body
    assert shown["message"]["body_text"] is None
    assert (shown["status"], shown["discard_reason"], shown["fence"], shown["in_inbox"]) == (
        "discarded", "no need", "dead", False,
    )  # fmt: skip
    assert shown["failures"][0]["worker"] == "w1@host"
    assert [(row["action"], row["actor"], row["reason"]) for row in shown["audit"]] == [("discarded", "ann", "no need")]


def test_a_hostile_payload_does_not_steer_the_terminal(place: Place, shell: Shell) -> None:
    evil = "\x1b[2J\x1b]0;gotcha\x07[red]x[/red]\x9b"
    sent = Message(evil.encode(), None, None, {"x": evil}, {}, "q")
    letter_id = place.dead("a", message=sent, error=evil, task="pay", tenant=evil)
    place.run("UPDATE core.dead_letters SET job_id = :evil", evil=evil)
    for words in (("list",), ("show", letter_id)):
        out = shell("dead-letters", *words).stdout
        assert "\x1b" not in out
        assert "\x07" not in out
        assert "\x9b" not in out
        assert "[red]x[/red]" in out.replace("\n", "")


def test_replay_by_number(place: Place, shell: Shell) -> None:
    first, second = place.dead("a"), place.dead("b")
    place.done("b")
    out = shell("dead-letters", "replay", first, second).stdout
    assert out.splitlines() == [
        "1 letter replayed: its job is in the inbox, and the relay sends it to the queue now",
        "1 letter resolved, nothing sent: its job had succeeded meanwhile",
    ]
    assert place.state("a") is FenceState.WAITING
    assert place.waiting("a").letter_id == first
    assert place.waiting("b") is None
    assert place.audit(first) == [("replayed", getpass.getuser(), None)]


def test_exit_codes_of_replay(place: Place, shell: Shell) -> None:
    first, second = place.dead("a"), place.dead("b")
    place.run("ALTER TABLE core.inbox ADD CONSTRAINT no_b CHECK (job_id <> 'b')")
    found = shell.json("dead-letters", "replay", first, second, 999, code=4)
    assert {**found, "letters": None} == {
        "matched": 3, "replayed": 1, "resolved": 0, "refused": 1, "failed": 1, "letters": None,
    }  # fmt: skip
    assert [letter["result"] for letter in found["letters"]] == ["replayed", "failed", "refused"]
    refused = shell("dead-letters", "replay", first, code=1)
    assert f"letter {first}: refused: Letter {first} is being tried again" in refused.stderr
    shell("dead-letters", "replay", code=2)
    shell("dead-letters", "replay", "x", code=2)
    shell("dead-letters", "replay", "--older", "soon", code=2)
    shell("dead-letters", "replay", "--reason", "because", code=2)


def test_bulk_is_guarded_by_the_count(place: Place, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    letters = [place.dead(f"j{n}") for n in range(3)]

    refused = shell("dead-letters", "replay", "--task", "pay", code=1)
    assert "would replay 3 letters" in refused.stderr
    assert "--expect 3" in refused.stderr
    assert "--expect 2, but 3" in shell("dead-letters", "replay", "--task", "pay", "--expect", 2, code=1).stderr
    shell("dead-letters", "replay", "--task", "pay", "--expect", 2, "--yes", code=1)
    assert "would replay 3 letters: 1, 2, 3" in shell("dead-letters", "replay", "--task", "pay", "--dry-run").stdout
    monkeypatch.setattr("harness.cli.choose.sys", Terminal)
    assert "Replay 3 letters?" in shell("dead-letters", "replay", "--task", "pay", stdin="n\n", code=1).stderr
    assert [place.letter(letter).status for letter in letters] == ["pending_review"] * 3

    shell("dead-letters", "replay", "--task", "pay", "--limit", 1, stdin="y\n")
    shell("dead-letters", "replay", "--task", "pay", "--limit", 1, "--expect", 1)
    shell("dead-letters", "replay", "--status", "pending_review", "--yes")
    assert [place.letter(letter).replays for letter in letters] == [1, 1, 1]


class Terminal:
    class stdin:
        @staticmethod
        def isatty() -> bool:
            return True


def test_numbers_and_filters_together_narrow(place: Place, shell: Shell) -> None:
    first, second = place.dead("a"), place.dead("b", task="ship")
    found = shell.json("dead-letters", "replay", first, second, "--task", "ship", "--dry-run")
    assert found == {"matched": 1, "dry_run": True, "ids": [second]}


@pytest.mark.parametrize("reason", ["", "  ", "\n"])
def test_discard_needs_a_reason(place: Place, shell: Shell, reason: str) -> None:
    letter_id = place.dead("a")
    assert "--reason" in shell("dead-letters", "discard", letter_id, code=2).stderr
    assert "reason" in shell("dead-letters", "discard", letter_id, "--reason", reason, code=1).stderr
    assert place.letter(letter_id).status == "pending_review"


def test_discard_in_bulk(place: Place, shell: Shell) -> None:
    for n in range(3):
        place.dead(f"j{n}")
    words = ("dead-letters", "discard", "--dead-reason", "exhausted", "--reason", "paid by hand")
    shell(*words, code=1)
    found: Any = shell.json(*words, "--expect", 3, "--actor", "ann")
    assert (found["discarded"], found["resolved"]) == (3, 0)
    assert place.one("SELECT count(*) FROM core.dead_letters WHERE discard_reason = 'paid by hand'") == 3
    assert place.one("SELECT count(*) FROM core.audit_log WHERE actor = 'ann' AND action = 'discarded'") == 3


def test_only_the_own_service(place: Place, shell: Shell) -> None:
    foreign = place.dead("a", service="shop")
    shell("dead-letters", "show", foreign, code=3)
    shell("dead-letters", "replay", foreign, code=3)
    shell("dead-letters", "discard", foreign, "--reason", "x", code=3)
    shell("dead-letters", "discard", "--job-id", "a", "--reason", "x", "--yes", code=3)
    assert place.letter(foreign, "shop").status == "pending_review"


def test_many_troubles_are_not_all_printed(place: Place, shell: Shell) -> None:
    result = shell("dead-letters", "replay", *range(100, 150), code=3)
    assert len(result.stderr.splitlines()) == 21
    assert "30 more" in result.stderr
    assert len(json.loads(shell("dead-letters", "replay", *range(100, 150), "--json", code=3).stdout)["letters"]) == 50
