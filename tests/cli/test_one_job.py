"""`inbox JOB_ID`: one job that waits, whole; and what is said where a name, a number or an id fits nothing."""

from __future__ import annotations

import json

from harness.core.reason import Reason
from tests.cli.conftest import Shell
from tests.letters import Place

FAILURES = [
    {
        "error_type": "ValueError",
        "message": "bad luck",
        "traceback": "Traceback 1 …",
        "attempt": 1,
        "kind": "transient",
    },
    {"error_type": "bank.Timeout", "message": "no answer", "attempt": 2, "kind": "transient", "worker": "w1@host"},
]


def test_one_job_is_shown_whole(place: Place, shell: Shell) -> None:
    place.wait("order-1")
    place.wait("order-2")
    place.run(
        "UPDATE core.inbox SET attempts = 2, failures = CAST(:failures AS jsonb), relay_error = 'no queue',"
        " correlation_id = 'corr', available_at = now() + interval '125 minutes' WHERE job_id = 'order-1'",
        failures=json.dumps(FAILURES),
    )
    out = shell("inbox", "order-1").stdout
    for word in (
        "job order-1: pay", "in 2h", "2 failed (0 deliveries", "no queue", "billing/pay", "corr", "payments",
        '"account": 7', "2 failures", "Traceback 1 …", "bank.Timeout: no answer", "worker w1@host", "sha256",
        "application/json",
    ):  # fmt: skip
        assert word in out, word
    assert "order-2" not in out
    [row] = shell.json("inbox", "order-1")
    assert (row["job_id"], row["failures"], row["arguments"]["kwargs"]) == ("order-1", FAILURES, {"account": 7})
    assert (row["message"]["queue"], row["relay_error"], row["attempts"]) == ("payments", "no queue", 2)


def test_an_id_of_two_jobs_shows_both(place: Place, shell: Shell) -> None:
    place.wait("a")
    place.wait("a", task="ship")
    place.wait("a", service="shop")
    assert {row["task"] for row in shell.json("inbox", "a")} == {"pay", "ship"}


def test_a_job_that_is_not_there(place: Place, shell: Shell) -> None:
    assert "has no job 'nobody' in its inbox" in shell("inbox", "nobody", code=3).stderr
    letter_id = place.dead("order-1")
    assert f"dead-letters show {letter_id}" in shell("inbox", "order-1", code=3).stderr
    assert "leave JOB_ID out" in shell("inbox", "order-1", "--blocked", code=2).stderr


def test_a_stranger_does_not_steer_the_terminal(place: Place, shell: Shell) -> None:
    place.wait("order-1")
    place.run("UPDATE core.inbox SET relay_error = chr(27) || '[31m', correlation_id = chr(27) || ']0;x'")
    assert chr(27) not in shell("inbox", "order-1").stdout


def test_the_id_of_a_job_is_no_number_of_a_letter(shell: Shell) -> None:
    words: tuple[object, ...]
    for words in (("show", "order-2"), ("replay", "order-2"), ("discard", "order-2", "--reason", "x"), ("show", 2**63)):
        said = " ".join(shell("dead-letters", *words, code=2).stderr.replace("│", " ").split())
        assert f"dead-letters list --job-id {words[1]}" in said


def test_not_ready_spends_no_try(place: Place, shell: Shell) -> None:
    letter_id = place.dead("a", reason=Reason.not_ready)
    place.run("UPDATE core.dead_letters SET attempts = 1")
    assert shell("dead-letters", "list").stdout.splitlines()[1].split()[3] == "0"
    assert "  tries          0 (" in shell("dead-letters", "show", letter_id).stdout


def test_a_task_of_another_name(place: Place, shell: Shell) -> None:
    place.dead("a", task="billing.credit_points")
    assert "is billing.credit_points meant?" in shell("dead-letters", "list", "--task", "credit_points").stdout
    near = shell("dead-letters", "replay", "--task", "billing.credit_point", "--yes", code=3).stdout
    assert near == "no letter matches; no task is called billing.credit_point, is billing.credit_points meant?\n"
    assert shell("dead-letters", "list", "--task", "pay").stdout == "no letter matches\n"
    assert shell("dead-letters", "list", "--task", "qqqqqq").stdout.endswith("no task is called qqqqqq\n")


def test_the_codes_are_those_of_the_help(place: Place, shell: Shell) -> None:
    letter_id = place.dead("a")
    shell("dead-letters", "replay", 99, code=3)
    shell("dead-letters", "replay", 99, letter_id, code=4)
    shell("inbox", "--limit", 1)
    assert "also where nothing waits" in " ".join(shell("inbox", "--help").stdout.split())


def test_a_mere_list_has_nothing_under_way() -> None:
    away = Shell("postgresql://ann:x@127.0.0.1:1/none", outage_hold=0.1)
    for words in (("dead-letters", "list"), ("inbox",)):
        said = away(*words, code=1).stderr
        assert "?." not in said
        assert "under way" not in said
    assert "under way" in away("dead-letters", "discard", 1, "--reason", "x", "--older", "1d", code=1).stderr
    away.close()


def test_the_driver_of_the_url_is_named() -> None:
    for driver in ("psycopg", "asyncpg"):
        shell = Shell(f"postgresql+{driver}://ann:secret@127.0.0.1:1/none")
        said = shell("inbox", code=1).stderr
        assert f"harness_database_url = …: names the driver {driver}; the harness uses psycopg2" in said
        assert "postgresql://user:password@host:5432/database" in said, "the example is not masked"
        assert "secret" not in said
        shell.close()
    # In the second one the driver's port would be a part of the password.
    for url in ("mysql://ann:secret@127.0.0.1:1/none", "postgresql://ann:x@y:secret@127.0.0.1:1/none"):
        shell = Shell(url)
        said = shell("inbox", code=1).stderr
        assert "is no URL of PostgreSQL" in said
        assert "secret" not in said
        shell.close()


def test_a_password_in_the_query_of_the_url_is_not_shown(place: Place) -> None:
    user, password = place.database.url.username, place.database.url.password
    url = place.database.url.set(username=None, password=None).update_query_dict({"user": user, "password": password})
    shell = Shell(url.render_as_string(hide_password=False))
    said = shell("migrate", "--check").stdout.replace("\n", "")  # a long line is broken anywhere
    assert "password=***" in said
    assert str(password) not in said
    shell.close()


def test_ids_are_shown_as_they_are(place: Place, shell: Shell) -> None:
    job_id = "order:key:100"
    letter_id = place.dead(job_id)
    place.run("UPDATE core.dead_letters SET error_message = ':warning: left'")
    assert job_id in shell("dead-letters", "list").stdout
    shown = shell("dead-letters", "show", letter_id).stdout
    assert (job_id in shown, ":warning:" in shown) == (True, True)


def test_a_role_without_rights(place: Place) -> None:
    place.run("CREATE ROLE one_job_test LOGIN PASSWORD 'x'")
    try:
        url = place.database.url.set(username="one_job_test", password="x")
        poor = Shell(url.render_as_string(hide_password=False))
        said = poor("inbox", code=1).stderr
        assert "permission denied for schema core" in said
        assert "harness migrate --grants one_job_test" in said
        checked = " ".join(poor("check", code=1).stdout.split())
        assert "may not: USAGE on schema core" in checked
        assert "harness migrate --grants ROLE" in checked
        poor.close()
    finally:
        place.run("DROP ROLE one_job_test")
