"""A roll-out: this release's code on older tables, the last release's code on newer ones, both at once.

What a release must not do to the tables (rename, drop, demand) is tried as well: the same scene finds it broken.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from harness.store import migrate, revisions
from tests.migration import releases, scenario
from tests.migration.releases import NoRelease, Release, released, this, with_migration
from tests.migration.scenario import Broken, Scene, play
from tests.worker.running import ROOT, until

KNOWN = revisions.revisions()
SUPPORTED = KNOWN[KNOWN.index(revisions.OLDEST) :]
#: What the last release meets in a roll-out: every revision after its own; its own, while there is no newer one.
NEWER = KNOWN[KNOWN.index(releases.REVISION) + 1 :] or [releases.REVISION]

ADDITIVE = """
    CREATE TABLE {schema}.novelties (id bigint PRIMARY KEY);
    ALTER TABLE {schema}.inbox ADD COLUMN novelty text;
    ALTER TABLE {schema}.processed_jobs ADD COLUMN novelty integer NOT NULL DEFAULT 0
"""
RENAMED = "ALTER TABLE {schema}.inbox RENAME COLUMN deliveries TO copies"
DROPPED = "ALTER TABLE {schema}.dead_letters DROP COLUMN lineage"
DEMANDED = "ALTER TABLE {schema}.processed_jobs ADD COLUMN novelty integer NOT NULL CHECK (novelty > 0)"


@pytest.fixture(scope="module")
def last(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return released(tmp_path_factory.mktemp("released"))


@pytest.mark.parametrize("revision", SUPPORTED)
def test_this_release_on_every_revision_that_it_supports(
    empty_database: str, redis_url: str, tmp_path: Path, revision: str
) -> None:
    migrate.upgrade(empty_database, revision=revision)
    scene = Scene(this(), empty_database, redis_url, tmp_path)
    play(scene)
    assert ("schema-behind: " in scene.text()) == (revision != KNOWN[-1])


@pytest.mark.parametrize("revision", NEWER)
def test_the_last_release_on_every_newer_revision(
    last: Release, empty_database: str, redis_url: str, tmp_path: Path, revision: str
) -> None:
    assert last.newest() == releases.REVISION
    migrate.upgrade(empty_database, revision=revision)
    play(Scene(last, empty_database, redis_url, tmp_path))


def test_a_roll_out_under_load(empty_database: str, redis_url: str, tmp_path: Path) -> None:
    """Migrate while the old worker works; both work; the old one ends. Under a schema of another name."""
    newer = with_migration(tmp_path, ADDITIVE)
    migrate.upgrade(empty_database, "jobs")
    old = Scene(this(), empty_database, redis_url, tmp_path, schema="jobs")
    new = Scene(newer, empty_database, redis_url, tmp_path, schema="jobs")
    old.prepare()
    sent: list[str] = []

    def send() -> None:
        more = [f"job-{number}" for number in range(len(sent), len(sent) + 20)]
        sent.extend(more)
        for number, job_id in enumerate(more):
            old.send(job_id, "fails_once" if number % 4 == 0 else "completes")

    with new.worker():  # before its migration: the other order of a roll-out
        assert "schema-behind: The tables are at " + KNOWN[-1] in new.text()
        with old.worker():
            send()
            newer.migrate(empty_database, schema="jobs")
            send()
            until(lambda: len(old.query("SELECT 1 FROM core.processed_jobs")) > 20, 120, "the old one goes on")
        send()
        for scene in (old, new):
            assert "novelt" not in scene.text()
        new.wait("the effects", scenario.EFFECTS, dict.fromkeys(sent, 1))
        new.wait("the fences", scenario.FENCES, dict.fromkeys(sent, "done"))
    assert revisions.stand(migrate.current(empty_database, "jobs")) is revisions.Stand.AHEAD


def test_a_worker_started_after_the_next_release_has_migrated(
    last: Release, empty_database: str, redis_url: str, tmp_path: Path
) -> None:
    with_migration(tmp_path, ADDITIVE).migrate(empty_database)
    play(Scene(last, empty_database, redis_url, tmp_path))


@pytest.mark.parametrize("statements", [RENAMED, DROPPED, DEMANDED], ids=["renamed", "dropped", "demanded"])
def test_a_migration_that_breaks_older_code_is_found(
    empty_database: str, redis_url: str, tmp_path: Path, statements: str
) -> None:
    with_migration(tmp_path, statements).migrate(empty_database)
    with pytest.raises(Broken, match=r"deliveries|lineage|novelty|ProgrammingError|IntegrityError"):
        play(Scene(this(), empty_database, redis_url, tmp_path))


def test_a_schema_that_is_too_old_is_refused(empty_database: str, redis_url: str, tmp_path: Path) -> None:
    newer = with_migration(tmp_path, ADDITIVE)
    module = newer.tree / "harness" / "store" / "revisions.py"
    module.write_text(module.read_text().replace(f'OLDEST = "{revisions.OLDEST}"', 'OLDEST = "9001"'))
    migrate.upgrade(empty_database)
    with (
        pytest.raises(Broken, match=f"has tables of the older release {KNOWN[-1]}.*harness migrate"),
        Scene(newer, empty_database, redis_url, tmp_path).worker(),
    ):
        pass


def test_a_clone_without_the_release_says_how_to_get_it(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "init", "--quiet", str(clone)], check=True)
    with pytest.raises(NoRelease, match="git fetch --unshallow"):
        released(tmp_path, clone)
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / "docs", copy)
    with pytest.raises(NoRelease, match="clone the repository"):
        released(tmp_path, copy)
