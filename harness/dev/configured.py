"""Which servers the environment or the app's configuration names already."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from harness.core.masked import masked

DATABASE = "HARNESS_DATABASE_URL"
BROKER = "CELERY_BROKER_URL"
RESULTS = "CELERY_RESULT_BACKEND"
#: Whose variables a shell has: the folder of the run that wrote them.
FOLDER = "HARNESS_DEV_FOLDER"


#: Where an app names a broker to read from, or to write to, beside CELERY_BROKER_URL.
BROKERS_APART = {"broker_read_url": "CELERY_BROKER_READ_URL", "broker_write_url": "CELERY_BROKER_WRITE_URL"}


@dataclass(frozen=True, slots=True)
class Configured:
    """URLs; None where none is named. `apart`: the variables of the brokers that are named beside it."""

    database: str | None
    broker: str | None
    results: str | None
    apart: tuple[str, ...] = ()


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
    apart = {variable: url for name, variable in BROKERS_APART.items() if (url := _apart(app.conf, name, variable))}
    broker = app.conf.broker_url or next(iter(apart.values()), None)
    return Configured(database, broker and one_url(broker), app.conf.result_backend, tuple(apart))


def _apart(conf: Any, name: str, variable: str) -> Any:
    return os.environ.get(variable) or conf.get(name)


def one_url(url: str | Iterable[str]) -> str:
    """A broker's URL as its variable has it: Celery takes a list of several as well."""
    return url if isinstance(url, str) else ";".join(url)


def whose(name: str) -> str:
    """Where a URL that is used comes from: the environment's variable `name`, or the app's configuration."""
    if not os.environ.get(name):
        return "the configured one"
    run = os.environ.get(FOLDER)
    return f"from {name} in the environment" + (f" (of the run in {run})" if run else "")


def without_password(url: str) -> str:
    """The URL, or each of several with a `;` between them, without user and password."""
    told = []
    for one in url.split(";"):
        parts = urlsplit(masked(one))
        told.append(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl())
    return ";".join(told)
