"""compose.yaml, Containerfile and the units, linted; and what no linter knows: the limits fit together."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import celeryconfig
from harness.worker.settings import Settings
from tests.deploy.composed import COMPOSE, CONTAINERFILE, OURS, SERVICES, image_command, instruction
from tests.worker.running import ROOT

BIN = Path(sys.executable).parent
HARD_LIMIT = celeryconfig.task_time_limit
OUTAGE_HOLD = Settings.model_fields["outage_hold"].default


def seconds(text: str) -> int:
    """A duration of compose or systemd."""
    units = {"ms": 0.001, "s": 1, "min": 60, "m": 60, "h": 3600, "": 1}
    return int(sum(float(count) * units[unit] for count, unit in re.findall(r"(\d+)(ms|min|s|m|h|$)", text)))


def run(*command: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=60)


def test_compose_keeps_to_the_schema(tmp_path: Path) -> None:
    check = [BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = run(*check, ROOT / "compose.yaml")
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "compose.yaml"
    wrong.write_text((ROOT / "compose.yaml").read_text().replace("stop_grace_period", "stop_grace"))
    assert run(*check, wrong).returncode == 1


def test_the_containerfile_has_no_finding() -> None:
    done = run(BIN / "hadolint", ROOT / "Containerfile")
    assert (done.returncode, done.stdout) == (0, "")
    assert run(BIN / "hadolint", "-", stdin=CONTAINERFILE.replace("3.11.13-slim-bookworm", "latest")).returncode == 1


def test_the_image() -> None:
    bases = [line.split()[0] for line in instruction("FROM")]
    assert len(set(bases)) == 1, "both stages have the same Python"
    assert re.fullmatch(r"docker\.io/library/python:\d+\.\d+\.\d+-slim-\w+", bases[0])
    last = CONTAINERFILE[CONTAINERFILE.rindex("\nFROM ") :]
    assert int(re.search(r"^USER (\d+)", last, re.MULTILINE)[1]) > 0  # type: ignore[index]
    assert instruction("STOPSIGNAL") == ["SIGTERM"]
    for name in ("ENTRYPOINT", "CMD"):
        [command] = instruction(name)
        assert isinstance(json.loads(command), list), "exec form: a shell as process 1 would keep SIGTERM for itself"
    for line in instruction("ENV") + instruction("ARG"):
        assert not re.search(r"(?i)passw|secret|token|://", line)


def test_the_image_gets_the_files_that_it_copies(tmp_path: Path) -> None:
    """.dockerignore lets them through, and the package is built from them alone."""
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for arguments in instruction("COPY"):
        if arguments.startswith("--from"):
            continue
        *sources, _ = arguments.split()
        for source in sources:
            assert source.split("/")[0] in let_through, source
            assert (ROOT / source).exists(), source
    for source in ("pyproject.toml", "README.md", "LICENSE", "pytest_job_harness.py"):
        shutil.copy(ROOT / source, tmp_path)
    for source in ("alembic", "harness"):
        shutil.copytree(ROOT / source, tmp_path / source, ignore=shutil.ignore_patterns("__pycache__"))
    done = run(BIN / "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path / "wheels", tmp_path)
    assert done.returncode == 0, done.stderr
    [wheel] = (tmp_path / "wheels").iterdir()
    listed = run(sys.executable, "-m", "zipfile", "--list", wheel).stdout
    assert "harness/migrations/versions/0001_tables.py" in listed


def test_no_secret_stands_in_compose() -> None:
    for name, service in SERVICES.items():
        for key, value in service.get("environment", {}).items():
            assert not re.search(r"(?i)pass|secret|token|auth", key), (name, key)
            assert "://" not in str(value), (name, key)
    assert not re.search(r"://[^/\s]*:[^/\s]*@", (ROOT / "compose.yaml").read_text())
    assert "deploy/secrets/" in (ROOT / ".gitignore").read_text().splitlines()
    assert not run("git", "-C", ROOT, "ls-files", "deploy/secrets").stdout


@pytest.mark.parametrize("name", SERVICES)
def test_a_service(name: str) -> None:
    service = SERVICES[name]
    if name in OURS:
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"]
        assert service["command"] is not None
        assert image_command(service)[0] in ("celery", "python"), "no shell in between"
    else:
        assert re.fullmatch(r"docker\.io/library/\w+:\d[\w.-]*", service["image"]), "a version, not latest"
        assert "healthcheck" in service
    for address in service.get("ports", ()):
        assert address.startswith("127.0.0.1:")
    for mount in service.get("volumes", ()):
        assert mount.split(":")[0] in COMPOSE["volumes"]
    if "healthcheck" in service:
        check = service["healthcheck"]
        assert seconds(check["timeout"]) <= seconds(check["interval"])


@pytest.mark.parametrize("name", ["worker", "relay", "beat", "flower"])
def test_what_a_program_waits_for(name: str) -> None:
    """The tables come first, then the programs; the servers before both."""
    conditions = {other: needs["condition"] for other, needs in SERVICES[name]["depends_on"].items()}
    assert conditions == {
        "migrate": "service_completed_successfully",
        "ledger": "service_completed_successfully",
        "rabbitmq": "service_healthy",
    }
    for first in ("migrate", "ledger"):
        assert SERVICES[first]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
        assert SERVICES[first]["restart"] == "on-failure:5"
    assert SERVICES[name]["restart"] == "unless-stopped"


def test_the_limits_fit_together() -> None:
    worker, postgres = SERVICES["worker"], SERVICES["postgres"]
    assert seconds(worker["stop_grace_period"]) > HARD_LIMIT, "a job in hand may end"
    settings = dict(word.split("=", 1) for word in postgres["command"] if "=" in word)
    assert seconds(settings["idle_in_transaction_session_timeout"]) > HARD_LIMIT
    [content] = [config["content"] for config in COMPOSE["configs"].values()]
    timeout = int(re.search(r"^consumer_timeout = (\d+)$", content, re.MULTILINE)[1]) / 1000  # type: ignore[index]
    assert timeout > HARD_LIMIT + OUTAGE_HOLD
    assert worker["environment"]["HARNESS_RELAY"] == "off", "the relay has a service of its own"
    assert SERVICES["beat"]["volumes"] == ["beat:/var/lib/beat"]
    assert any(word.startswith("--schedule=/var/lib/beat/") for word in SERVICES["beat"]["command"])


def units() -> dict[str, str]:
    """The units of docs/howto/deploy.md by name; each block begins with its path as a comment."""
    page = (ROOT / "docs" / "howto" / "deploy.md").read_text()
    return dict(re.findall(r"^```ini\n# /etc/systemd/system/([\w@.-]+)\n(.*?)^```", page, re.MULTILINE | re.DOTALL))


UNITS = units()
_SERVICE = """
    Type User EnvironmentFile WorkingDirectory ExecStart Restart RestartSec KillMode TimeoutStopSec OOMPolicy
    StateDirectory Environment NoNewPrivileges ProtectSystem PrivateTmp ProtectHome
"""
KEYS = {"Unit.Description", "Unit.After", "Unit.Wants", "Unit.StartLimitIntervalSec", "Install.WantedBy"}
KEYS |= {f"Service.{key}" for key in _SERVICE.split()}


def parsed(unit: str) -> Mapping[str, list[str]]:
    """`Section.Key` → values, in order."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in re.sub(r"\\\n\s*", " ", unit).splitlines():
        if header := re.fullmatch(r"\[(\w+)\]", line):
            section = header[1]
        elif line and not line.startswith("#"):
            key, value = line.split("=", 1)
            found.setdefault(f"{section}.{key}", []).append(value)
    return found


def test_the_units_are_all_there() -> None:
    assert set(UNITS) == {
        "ledger-migrate.service", "ledger-worker.service", "ledger-relay.service", "ledger-beat.service",
        "ledger-flower.service",
    }  # fmt: skip


@pytest.mark.parametrize("name", UNITS)
def test_a_unit(name: str) -> None:
    unit = parsed(UNITS[name])
    [command] = unit["Service.ExecStart"]
    assert command.startswith("/opt/ledger/.venv/bin/celery -A examples.github_ledger.app ")
    assert unit["Service.User"] == ["ledger"]
    assert unit["Service.EnvironmentFile"] == ["/etc/ledger/env"]
    assert "Environment.Password" not in unit
    program = name.removesuffix(".service").removeprefix("ledger-")
    ours: list[Any] = SERVICES[program]["command"]
    same = [word for word in ours if not word.startswith(("--schedule", "--address", "--hostname"))]
    assert [word for word in same if word not in command.split()] == [], "the commands of compose.yaml, which are run"
    if program == "migrate":
        assert unit["Service.Type"] == ["oneshot"]
        return
    assert unit["Service.Restart"] == ["always"]
    # SIGTERM to the worker alone: its processes would break off their jobs.
    assert unit["Service.KillMode"] == ["mixed"]
    if program == "worker":
        assert seconds(unit["Service.TimeoutStopSec"][0]) > HARD_LIMIT
        assert unit["Service.OOMPolicy"] == ["continue"]


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """Where systemd is installed its own verdict; everywhere, that no key or section is misspelt."""
    for name, unit in UNITS.items():
        assert set(parsed(unit)) <= KEYS, name
        # verify looks for the program, the user and the folder, which only the host of the docs has.
        text = unit.replace("/opt/ledger/.venv/bin/celery", "/bin/true").replace("WorkingDirectory=/opt/ledger", "")
        (tmp_path / name).write_text(re.sub(r"^(User|EnvironmentFile)=.*\n", "", text, flags=re.MULTILINE))
    if (systemd := shutil.which("systemd-analyze")) is None:
        return
    paths = [tmp_path / name for name in UNITS]
    done = run(systemd, "verify", "--man=no", *paths)
    findings = [line for line in done.stderr.splitlines() if any(name in line for name in UNITS)]
    assert findings == []
    (tmp_path / "ledger-beat.service").write_text(UNITS["ledger-beat.service"].replace("KillMode=mixed", "KillMode=x"))
    assert "Failed to parse kill mode" in run(systemd, "verify", "--man=no", tmp_path / "ledger-beat.service").stderr
