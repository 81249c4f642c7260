"""Settings that are unknown, misspelt, or stand where they are not read."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from celery import Celery
from celery.bin.base import CLIContext
from click.testing import CliRunner

from harness import Harness
from harness.cli import harness as group
from harness.core.errors import ConfigError
from harness.worker.check import diagnose

URL = "postgresql://nobody:secret@127.0.0.1:1/none"


def module(**settings: Any) -> ModuleType:
    made = ModuleType("settings_of_a_project")
    made.__dict__.update(settings)
    return made


def app(namespace: str | None = None, **settings: Any) -> Harness:
    made = Celery("shop", broker="memory://", set_as_current=False)
    made.config_from_object(module(**settings), namespace=namespace)
    return Harness(made)


@pytest.fixture(autouse=True)
def _nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HARNESS_DATABASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("namespace", "name"),
    [(None, "harness_proccessed_ttl"), (None, "HARNESS_PROCCESSED_TTL"), ("CELERY", "CELERY_HARNESS_PROCCESSED_TTL")],
)
def test_a_misspelt_setting_is_refused_in_every_form(namespace: str | None, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"Unknown settings: {name} \(is harness_processed_ttl meant\?\)\. Known"):
        _ = app(namespace, **{name: 1}).settings


@pytest.mark.parametrize(
    ("namespace", "prefix"), [(None, "harness_"), (None, "HARNESS_"), ("CELERY", "CELERY_HARNESS_")]
)
def test_a_setting_is_read_in_every_form(namespace: str | None, prefix: str) -> None:
    names = {f"{prefix}{'DATABASE_URL' if prefix.isupper() else 'database_url'}": URL}
    names[f"{prefix}{'PRUNE_EVERY' if prefix.isupper() else 'prune_every'}"] = 77.0
    made = app(namespace, **names)
    assert (made.settings.database_url, made.settings.prune_every) == (URL, 77.0)
    assert made.app.conf.beat_schedule["harness.prune"]["schedule"] == 77.0


def test_a_setting_beside_the_namespace_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"not read.*'CELERY'.*HARNESS_RELAY.*Call them CELERY_HARNESS_RELAY"):
        _ = app("CELERY", CELERY_HARNESS_DATABASE_URL=URL, HARNESS_RELAY="off").settings


def test_what_is_not_ours_beside_a_namespace_is_left_alone() -> None:
    assert app("CELERY", CELERY_HARNESS_DATABASE_URL=URL, HARNESS_SDK_KEY="x").settings.relay == "worker"


def test_a_misspelt_keyword_is_refused() -> None:
    made = Harness(Celery("shop", broker="memory://", set_as_current=False), database_url=URL, lesae=5)
    with pytest.raises(ConfigError, match=r"Harness\(…, lesae=…\) \(is harness_lease meant\?\)"):
        _ = made.settings


def test_no_database_where_harness_dev_runs(tmp_path: Path) -> None:
    (tmp_path / ".harness").mkdir()
    (tmp_path / ".harness" / "env").write_text("export HARNESS_DATABASE_URL=x\n")
    with pytest.raises(ConfigError, match=r"No database.*\. \.harness/env"):
        _ = app().settings


def test_no_database_and_a_misspelt_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_DATABSE_URL", URL)
    with pytest.raises(ConfigError, match="has HARNESS_DATABSE_URL, which is not read"):
        _ = app().settings


def test_no_database_at_all() -> None:
    with pytest.raises(ConfigError, match=r"No database.*harness dev\.$"):
        _ = app().settings


def test_settings_that_cannot_be_read_are_a_finding() -> None:
    made = app(harness_database_url=URL, harness_relay="maybe")
    [finding] = diagnose(made)
    assert (finding.name, finding.verdict) == ("settings", "broken")
    assert "harness_relay = 'maybe'" in finding.what
    context = CLIContext(app=made.app, no_color=True, workdir=None)
    result = CliRunner().invoke(group, ["check", "--json"], obj=context)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["findings"][0]["name"] == "settings"


def test_an_app_without_a_name() -> None:
    made = Celery(broker="memory://", set_as_current=False)
    made.conf.harness_database_url = URL
    by_name = {finding.name: finding for finding in diagnose(Harness(made))}
    assert by_name["service"].verdict == "warning"
    assert "'default'" in by_name["service"].what
    named = Celery(broker="memory://", set_as_current=False)
    assert {f.name: f for f in diagnose(Harness(named, database_url=URL, service="tasks"))}["service"].verdict == "ok"
