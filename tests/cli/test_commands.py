"""The other commands, the errors in words, and the command line as a user starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from harness.cli import harness as group
from harness.store.migrate import current
from harness.store.revisions import newest
from tests.cli.conftest import Shell
from tests.letters import Place
from tests.worker.running import ROOT


def commands(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, f"{path} {name}".strip())


ALL = dict(commands(group))


def test_the_commands() -> None:
    assert set(ALL) == {
        "", "check", "migrate", "dev", "relay", "receive", "inbox", "reorder", "enqueue", "prune", "replay-sweep",
        "dead-letters", "dead-letters list",
        "dead-letters show", "dead-letters replay", "dead-letters discard",
    }  # fmt: skip


@pytest.mark.parametrize("path", ALL)
def test_help_is_complete(path: str) -> None:
    command = ALL[path]
    assert command.help
    assert "Exit codes: 0" in (command.epilog or "")
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name not in ("help", "loglevel"):
            assert parameter.help, parameter.name


def test_a_worker_does_not_import_what_commands_need() -> None:
    """Celery loads the group in each of its processes."""
    code = (
        "import sys, harness.cli as cli; before = {'alembic', 'rich'} & {*sys.modules};"
        "print(len(before), cli.harness.commands['migrate'])"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.stdout.split() == ["0", "<Command", "migrate>"], ended.stderr


def test_migrate_says_from_and_to(empty_database: str) -> None:
    shell = Shell(empty_database)
    assert "is at nothing" in shell("migrate", "--check", code=1).stderr
    out = " ".join(shell("migrate").stdout.split())
    assert f"nothing → {newest()}" in out
    assert "schema 'core'" in out
    assert f"{newest()}, up to date" in " ".join(shell("migrate").stdout.split())
    shell("migrate", "--check")

    refused = shell("migrate", "--down", "base", code=1)
    assert "--yes" in refused.stderr
    assert current(empty_database) == newest()
    assert f"{newest()} → nothing" in " ".join(shell("migrate", "--down", "base", "--yes").stdout.split())
    assert current(empty_database) is None
    assert "can't be brought to" in shell("migrate", "--down", "9999", "--yes", code=1).stderr
    shell.close()


def test_a_database_of_a_newer_release(place: Place, shell: Shell) -> None:
    """A roll-back runs `migrate` of the older release again: no reason to stop it."""
    place.run("UPDATE core.harness_version SET version_num = '9999'")
    done = shell("migrate")
    assert "a newer release has migrated it" in done.stderr
    assert "9999" in done.stdout
    assert "of a newer release" in shell("migrate", "--check").stdout
    assert shell.json("migrate", "--check")["status"] == "ahead"
    assert "newer release" in shell("migrate", "--down", "base", "--yes", code=1).stderr


def test_another_schema(empty_database: str) -> None:
    shell = Shell(empty_database, schema="jobs")
    assert "schema 'jobs'" in shell("migrate").stdout
    assert current(empty_database, "jobs") == newest()
    shell("dead-letters", "list")
    shell.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--lock-timeout", "nan"), "is no number of seconds"),
        (("--lock-timeout", "1e9"), "is not in the range"),
        (("--grants", ""), "--grants wants the name of a role"),
    ],
)
def test_migrate_refuses(shell: Shell, words: tuple[str, ...], said: str) -> None:
    assert said in " ".join(shell("migrate", *words, code=2).stderr.split())


def test_an_argument_that_is_no_text(shell: Shell) -> None:
    for words in (("inbox", "\udcff"), ("dead-letters", "list", "--task", "\udcff")):
        assert r"'\udcff' can't be looked for or written: it is no UTF-8" in shell(*words, code=1).stderr


def test_prune(place: Place, shell: Shell) -> None:
    place.done("a")
    place.run("UPDATE core.processed_jobs SET processed_at = now() - interval '99 days'")
    assert shell("prune").stdout == "deleted 1 fence and 0 letters\n"
    assert shell.json("prune") == {"fences": 0, "letters": 0, "failed": 0}
    place.done("b")
    place.run("UPDATE core.processed_jobs SET processed_at = now() - interval '99 days'")
    place.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;"
        " CREATE TRIGGER refuse BEFORE DELETE ON core.processed_jobs FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    assert "1 part failed" in shell("prune", code=4).stdout


def test_replay_sweep(place: Place, shell: Shell) -> None:
    letter_id = place.dead("a")
    assert shell.json("replay-sweep")["not_yet"] == 1
    shell.open_gate = True
    assert "replayed 1" in shell("replay-sweep", "--actor", "ann").stdout
    assert [row[:2] for row in place.audit(letter_id)] == [("replayed", "ann")]
    assert place.waiting("a").letter_id == letter_id


def test_inbox(place: Place, shell: Shell) -> None:
    assert shell("inbox").stdout == "the inbox is empty\n"
    for job_id in ("late", "sent", "stuck", "now"):
        place.wait(job_id)
    place.wait("foreign", service="shop")
    place.run("UPDATE core.inbox SET available_at = now() + interval '125 minutes', attempts = 3 WHERE job_id = 'late'")
    place.run("UPDATE core.inbox SET leased_until = now() + interval '5 minutes' WHERE job_id = 'sent'")
    place.run(
        "UPDATE core.inbox SET relay_error = 'no queue', available_at = now() - interval '1 h' WHERE job_id = 'stuck'"
    )
    error = '[{"error_type": "first"}, {"error_type": "ValueError", "message": "bad luck"}]'
    place.run("UPDATE core.inbox SET failures = CAST(:error AS jsonb) WHERE job_id = 'late'", error=error)
    assert "; last error: ValueError: bad luck" in shell("inbox").stdout
    lines = shell("inbox").stdout.splitlines()
    assert lines[0].split() == ["due", "tries", "queue", "task"]
    assert [line.split(",")[0].strip() for line in lines[2::2]] == ["stuck", "now", "sent", "late"]
    assert lines[2] == "    stuck, 0 deliveries; problem: no queue"
    assert lines[3].split() == ["now", "0", "payments", "pay"]
    assert "sent, again in 4m 59s" in lines[5] or "sent, again in 5m" in lines[5]
    assert "in 2h 4m" in lines[7] or "in 2h 5m" in lines[7]
    assert lines[-1] == "4 jobs"
    assert shell("inbox", "--limit", 1).stdout.splitlines()[-1] == "1 of 4 jobs"
    rows = shell.json("inbox", "--limit", 1)
    assert [(row["job_id"], row["relay_error"], row["leased"]) for row in rows] == [("stuck", "no queue", False)]


COMMANDS = (
    ("dead-letters", "list"),
    ("inbox",),
    ("prune",),
    ("replay-sweep",),
    ("relay",),
    ("dead-letters", "show", "1"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_schema_that_is_not_there(empty_database: str, words: tuple[str, ...]) -> None:
    shell = Shell(empty_database)
    assert "celery -A yourapp harness migrate" in shell(*words, code=1).stderr
    shell.close()


@pytest.mark.parametrize("words", [*COMMANDS[:4], ("migrate",)], ids=" ".join)
def test_a_database_that_is_away(words: tuple[str, ...]) -> None:
    shell = Shell("postgresql://ann:s3cret@127.0.0.1:1/none", outage_hold=0.1)
    result = shell(*words, code=1)
    assert "PostgreSQL cannot be used" in result.stderr
    assert "127.0.0.1:1/none" in result.stderr
    assert "s3cret" not in result.output


def test_the_password_is_never_printed(place: Place) -> None:
    shell = Shell(place.url.replace("//postgres@", "//postgres:s3cret@"))
    assert "s3cret" not in shell("migrate").output
    shell.close()
    for url in ("postgresql://ann:s3cret@nowhere.invalid:x/db", "nothing://ann:s3cret@h/db", "ann:s3cret"):
        result = Shell(url)("dead-letters", "list", code=1)
        assert "s3cret" not in result.output
        assert "harness_database_url" in result.stderr


def test_no_database_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARNESS_DATABASE_URL", raising=False)
    assert "set harness_database_url" in Shell(None)("inbox", code=1).stderr


def test_dev_passes_its_options_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import harness.dev

    seen: list[object] = []

    def run(app_name: str, *, data: Path, pool_size: int, flower: bool | None, embedded: bool) -> int:
        seen.extend([app_name, data, pool_size, flower, embedded])
        return 1

    monkeypatch.setattr(harness.dev, "run", run)
    from celery.bin.celery import celery
    from click.testing import CliRunner

    words = ["-A", "tests.cli.app", "harness", "dev", "--data", str(tmp_path), "--concurrency", "3", "--no-flower"]
    words.append("--embedded")
    result = CliRunner().invoke(celery, words)
    assert result.exit_code == 1, result.output
    assert seen == ["tests.cli.app", tmp_path, 3, False, True]


def celery(url: str, *words: str, app: bool = True) -> subprocess.CompletedProcess[str]:
    """The command as a user starts it."""
    command = [sys.executable, "-m", "celery", *(["-A", "tests.cli.app"] if app else []), "harness", *words]
    env = os.environ | {"HARNESS_DATABASE_URL": url}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_from_the_shell(empty_database: str) -> None:
    refused = celery(empty_database, "dead-letters", "list")
    assert refused.returncode == 1
    assert "celery -A tests.cli.app harness migrate" in refused.stderr
    assert "Traceback" not in refused.stderr

    migrated = celery(empty_database, "migrate")
    assert (migrated.returncode, migrated.stderr) == (0, "")
    assert f"nothing → {newest()}" in " ".join(migrated.stdout.split())

    place = Place(empty_database)
    letter_id = place.dead("a")
    listed = celery(empty_database, "dead-letters", "list", "--task", "pay")
    assert (listed.returncode, listed.stdout.splitlines()[-1]) == (0, "1 letter")
    guarded = celery(empty_database, "dead-letters", "replay", "--task", "pay")
    assert guarded.returncode == 1
    assert "--expect 1" in guarded.stderr
    replayed = celery(empty_database, "dead-letters", "replay", "--task", "pay", "--expect", "1")
    assert (replayed.returncode, replayed.stdout[:17]) == (0, "1 letter replayed")
    assert place.letter(letter_id).status == "replayed"
    place.database.dispose()


def test_relay_runs_until_it_is_told_to_end(database: str) -> None:
    command = [sys.executable, "-m", "celery", "-A", "tests.cli.app", "harness", "relay"]
    env = os.environ | {"HARNESS_DATABASE_URL": database}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as relay:
        assert relay.stderr is not None
        assert "service 'billing'" in next(line for line in relay.stderr if "relaying" in line)
        assert relay.poll() is None
        # The line is written just before the handlers of the signals are set.
        for _ in range(100):
            if not _default(relay.pid):
                break
            time.sleep(0.05)
        relay.send_signal(signal.SIGTERM)
        assert relay.wait(20) == 0


def _default(pid: int) -> bool:
    """Is SIGTERM not caught by the process?"""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt:")).split()[1], 16)
    return not caught & 1 << signal.SIGTERM - 1


def test_without_an_app(empty_database: str) -> None:
    result = celery(empty_database, "inbox", app=False)
    assert result.returncode == 2
    assert "celery -A yourapp" in result.stderr
