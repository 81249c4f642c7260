"""Which servers `harness dev` says that it uses, and what it does not say of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.dev.configured import configured, without_password
from harness.dev.lock import take
from harness.dev.process import ServiceError


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://ann:s3cret@one//;amqp://ann:s3cret@two//", "amqp://one//;amqp://two//"),
        ("postgresql://one/d?user=ann&password=s3cret", "postgresql://one/d?user=ann&password=***"),
        ("redis://:s3/cr@et@one:6379/0", "redis://one:6379/0"),
    ],
)
def test_no_password_is_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_several_brokers_and_brokers_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "configured_app.py").write_text(
        "from celery import Celery\n"
        "app = Celery('configured_app', set_as_current=False)\n"
        "app.conf.broker_url = ['amqp://one//', 'amqp://two//']\n"
        "app.conf.broker_read_url = 'amqp://three//'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("HARNESS_DATABASE_URL", "CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    found = configured("configured_app:app")
    assert found.broker == "amqp://one//;amqp://two//"
    assert found.apart == ("CELERY_BROKER_READ_URL",), "with --embedded it must not be the configured one"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServiceError, match=r"/file/data can't be made \(Not a directory: .*\): use another folder"):
        take(tmp_path / "file" / "data")
