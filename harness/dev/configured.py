"""Which servers the environment or the app's configuration names already."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from urllib.parse import urlsplit

DATABASE = "HARNESS_DATABASE_URL"
BROKER = "CELERY_BROKER_URL"
RESULTS = "CELERY_RESULT_BACKEND"
#: Whose variables a shell has: the folder of the run that wrote them.
FOLDER = "HARNESS_DEV_FOLDER"


@dataclass(frozen=True, slots=True)
class Configured:
    """URLs; None where none is named."""

    database: str | None
    broker: str | None
    results: str | None


def configured(app_name: str) -> Configured:
    """Load the app (``celery -A``) and ask it."""
    from celery.app.utils import find_app

    from harness.core.errors import ConfigError
    from harness.worker.harness import Harness

    sys.path.insert(0, os.getcwd())  # as the celery command does
    app = find_app(app_name)
    try:
        database = os.environ.get(DATABASE) or Harness.of(app).settings.database_url
    except ConfigError:  # none; what else may be wrong is said by the programs, each of which reads the settings
        database = None
    return Configured(database, app.conf.broker_url, app.conf.result_backend)


def whose(name: str) -> str:
    """Where a URL that is used comes from: the environment's variable `name`, or the app's configuration."""
    if not os.environ.get(name):
        return "the configured one"
    run = os.environ.get(FOLDER)
    return f"from {name} in the environment" + (f" (of the run in {run})" if run else "")


def without_password(url: str) -> str:
    """The URL without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
