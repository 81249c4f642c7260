"""Where a test session's PostgreSQL and broker are: the configured ones, or embedded ones that end with it."""

import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from celery import Celery
from celery.app.utils import find_app
from sqlalchemy.exc import DBAPIError

from harness.core.errors import ConfigError
from harness.dev.configured import one_url
from harness.dev.postgres import Postgres
from harness.dev.service import Service
from harness.dev.valkey import Valkey
from harness.store import revisions
from harness.store.database import with_driver
from harness.worker.harness import Harness


def harness_of(app: str | Celery | Harness) -> Harness:
    """The harness of an app, or of what stands behind `celery -A`."""
    if isinstance(app, Harness):
        return app
    return Harness.of(find_app(app) if isinstance(app, str) else app)


def names_a_database(harness: Harness) -> bool:
    """Do the environment or the app's configuration say where PostgreSQL is?"""
    return bool(
        os.environ.get("HARNESS_DATABASE_URL")
        or harness._overrides.get("database_url")
        or harness.app.conf.get("harness_database_url")
    )


class Servers:
    """Embedded servers, started when first asked for. Also a context manager, which ends them."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._running: list[Service] = []

    def database_url(self, harness: Harness) -> str:
        """The configured database's URL, which must have the tables; else that of an embedded one, which is given them.

        Raises ConfigError where the tables are missing: a database that is not ours is not changed unasked.
        """
        if not names_a_database(harness):
            started = self._start(Postgres(self._place("postgres"), fsync=False))
            url = with_driver(started.url).render_as_string(hide_password=False)
            harness.app.conf.update(harness_database_url=url)
            harness.migrate()
            return url
        from harness.store.migrate import current as revision_of  # Alembic: a worker under test has no need of it

        settings = harness.settings
        try:
            current = revision_of(settings.database_url, settings.schema_name)
        except DBAPIError as error:
            raise ConfigError(
                f"The test database does not answer: {str(error.orig).strip().splitlines()[0]}. Start it; or name "
                "none, neither in HARNESS_DATABASE_URL nor in the configuration, and the tests bring one along."
            ) from None
        if revisions.stand(current) in (revisions.Stand.MISSING, revisions.Stand.TOO_OLD, revisions.Stand.BEHIND):
            raise ConfigError(
                f"The test database has no schema {settings.schema_name!r}, or one of an older release. Create it: "
                "celery -A yourapp harness migrate, or harness.migrate() in your conftest.py."
            )
        return settings.database_url

    def broker_url(self, app: Celery) -> str:
        """The configured broker's URL, else that of an embedded one (Redis protocol)."""
        if app.conf.broker_url:
            return one_url(app.conf.broker_url)
        url = self._start(Valkey(self._place("valkey"), fsync=False)).url
        app.conf.update(broker_url=url)
        return url

    def _place(self, name: str) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="harness-testing-"))
        return self._folder / name

    def _start(self, service: Service) -> Service:
        service.start()
        self._running.append(service)
        return service

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for service in reversed(self._running):
            service.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder)
