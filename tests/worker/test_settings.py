"""What a worker reads from its configuration, and what it refuses to start with."""

import subprocess
import sys
from pathlib import Path

import pytest
import tenacity
from celery import Celery

from harness import Harness, Policy
from harness.core.errors import ConfigError
from harness.worker import check

DAY = 86_400
URL = "postgresql://nobody@127.0.0.1:1/none"
ROOT = Path(__file__).parents[2]


def harness(**conf: object) -> Harness:
    app = Celery("shop", broker="memory://", set_as_current=False)
    app.conf.update({"harness_database_url": URL, **conf})
    return Harness(app)


def test_the_service_is_the_apps_name_by_default() -> None:
    assert harness().settings.service == "shop"


def test_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_DATABASE_URL", "postgresql://other/db")
    assert harness().settings.database_url == "postgresql://other/db"


def test_without_a_database_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARNESS_DATABASE_URL", raising=False)
    made = Harness(Celery("shop", broker="memory://", set_as_current=False))
    with pytest.raises(ConfigError, match="set harness_database_url"):
        _ = made.settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("harness_processed_ttl", 3600),
        ("harness_relay", "maybe"),
        ("harness_max_deliveries", 0),
        ("harness_service", "a/b"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        _ = harness(**{name: value}).settings


def test_an_unknown_setting_is_named_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"harness_proccessed_ttl.*Known ones.*harness_processed_ttl"):
        _ = harness(harness_proccessed_ttl=1).settings


def test_a_schema_name_that_is_no_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="plain PostgreSQL name"):
        _ = harness(harness_schema='x"; DROP').store


def test_the_default_ttl_exceeds_the_default_window() -> None:
    check.at_start(harness())


def test_a_ttl_below_the_retry_window_is_refused_with_the_figures() -> None:
    made = harness(harness_processed_ttl=2 * DAY)

    @made.job(name="slow", shared=False, policy=Policy(wait=tenacity.wait_fixed(DAY), reason="test"))
    def slow() -> None: ...

    with pytest.raises(ConfigError, match=r"job slow can last 4 days.*2 days.*172800"):
        check.at_start(made)


def test_a_policy_without_an_end_is_refused() -> None:
    made = harness(harness_policies={"q": Policy(stop=tenacity.stop_never, reason="test")})
    with pytest.raises(ConfigError, match="queue q has no end"):
        check.at_start(made)


def test_a_worker_refuses_to_start(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from celery import Celery\nfrom harness import Harness, Policy\nimport tenacity\n"
        "app = Celery('shop', broker='memory://')\n"
        f"harness = Harness(app, database_url={URL!r}, processed_ttl=90000)\n"
        "@harness.job(name='slow', policy=Policy(wait=tenacity.wait_fixed(86400), reason='test'))\n"
        "def slow(): ...\n"
    )
    command = [sys.executable, "-m", "celery", "-A", "shop", "worker", "-P", "solo"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode != 0
    assert "Raise harness_processed_ttl" in ended.stderr + ended.stdout


def test_a_second_harness_on_one_app_is_refused() -> None:
    made = harness()
    with pytest.raises(ConfigError, match=r"Harness\.of"):
        Harness(made.app)
    assert Harness.of(made.app) is made


def test_beat_has_our_tasks_unless_switched_off() -> None:
    assert {"harness.prune", "harness.replay"} <= harness().app.conf.beat_schedule.keys()
    off = harness(harness_prune_every=None, harness_replay_every=None)
    assert not {"harness.prune", "harness.replay"} & off.app.conf.beat_schedule.keys()


def test_the_projects_own_schedule_stays() -> None:
    own = {"nightly": {"task": "x", "schedule": 5.0}, "harness.prune": {"task": "harness.prune", "schedule": 7.0}}
    schedule = harness(beat_schedule=own).app.conf.beat_schedule
    assert schedule["nightly"] == own["nightly"]
    assert schedule["harness.prune"]["schedule"] == 7.0
    assert "harness.replay" in schedule


def test_a_database_without_tables_is_refused(empty_database: str) -> None:
    with pytest.raises(ConfigError, match="harness migrate"):
        check.at_start(harness(harness_database_url=empty_database))


def test_a_migrated_database_is_fine(database: str) -> None:
    check.at_start(harness(harness_database_url=database))


@pytest.mark.parametrize("url", ["sqlite:///x.db", "mysql://a@b/c", "postgresql+asyncpg://a@b/c", "nonsense"])
def test_a_url_that_is_not_postgresqls_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="harness_database_url"):
        _ = harness(harness_database_url=url).settings


def test_a_killed_worker_keeps_nobody_from_redelivering_for_long() -> None:
    """What kombu's channel is told; its own default for the mutex is five minutes. The project's word counts."""
    app = Celery("shop", broker="redis://127.0.0.1:1/0", set_as_current=False)
    app.conf.update(harness_database_url=URL, broker_transport_options={"unacked_restore_interval": 7})
    Harness(app)
    options = app.connection_for_read().transport_options
    assert (options["unacked_mutex_expire"], options["unacked_restore_interval"]) == (10, 7)
