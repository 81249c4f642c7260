"""The settings, as they stand in `celeryconfig.py` with the prefix `harness_`."""

import difflib
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from celery import Celery
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, field_validator
from sqlalchemy.exc import ArgumentError

from harness.core.errors import ConfigError
from harness.core.policy import Policy
from harness.process.spec import Limits
from harness.store.database import with_driver
from harness.store.schema import check_schema_name

DAY = 86_400.0
#: Seconds for which a process of the pool holds a message in an outage; then the parent does, and gives it out again.
LONGEST_HOLD = 60.0


class Settings(BaseModel):
    """Times are in seconds. Every field `x` is read from the Celery setting `harness_x`."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, frozen=True)

    service: str = Field(
        min_length=1,
        pattern=r"^[^/]+$",
        description="Whose jobs these are; rows of others are never touched.",
    )
    database_url: str = Field(
        description="PostgreSQL, as an SQLAlchemy URL. HARNESS_DATABASE_URL in the environment wins."
    )
    schema_name: str = Field("core", alias="schema", description="The PostgreSQL schema of the tables.")
    pool_size: PositiveInt = Field(1, description="Connections per process; as many as threads with the threads pool.")
    fence_wait: PositiveFloat = Field(10.0, description="How long a copy waits for another one's uncommitted fence.")
    outage_hold: PositiveFloat = Field(900.0, description="How long a message is held while PostgreSQL is away.")
    max_deliveries: PositiveInt = Field(
        5, description="Deliveries without an outcome before a job is dead (`crashed`)."
    )
    policies: Mapping[str, Policy] = Field({}, description="A retry policy per queue.")
    relay: Literal["worker", "off"] = Field("worker", description="Does each worker start a relay?")
    relay_poll: PositiveFloat = Field(0.5, description="How often an idle relay looks for due rows.")
    notify: bool = Field(True, description="Are the relays told after a commit that put jobs in? They poll as well.")
    relay_batch: PositiveInt = Field(100, description="Rows that a relay leases at once.")
    max_in_flight: PositiveInt | None = Field(
        None, description="Rows of one job that may be with the broker or at work at once; None: any number."
    )
    lease: PositiveFloat = Field(300.0, description="Until a dispatched row may be sent again; doubles each time.")
    lease_longest: PositiveFloat = Field(6 * 3600.0, description="The longest lease.")
    receive: Literal["worker", "off"] = Field(
        "worker", description="Does each worker start a receiver, where the app declares sources?"
    )
    receive_batch: PositiveInt = Field(
        100, description="Messages that a source holds, and takes in with one transaction."
    )
    recount_lease: PositiveFloat = Field(60.0, description="The lease of a job that was redelivered by the broker.")
    busy_delay: PositiveFloat = Field(5.0, description="When a copy that found its job at work is looked at again.")
    processed_ttl: float = Field(7 * DAY, ge=DAY, description="How long a fence is kept; at least a day.")
    letters_ttl: PositiveFloat = Field(90 * DAY, description="How long a resolved or discarded letter is kept.")
    window_margin: PositiveFloat = Field(DAY / 2, description="By how much processed_ttl must exceed the retry window.")
    prune_every: PositiveFloat | None = Field(3600.0, description="Beat's interval for harness.prune; None: off.")
    replay_every: PositiveFloat | None = Field(60.0, description="Beat's interval for harness.replay; None: off.")
    alert_every: PositiveFloat | None = Field(60.0, description="Beat's interval for harness.alert; None: off.")
    sentry: bool = Field(True, description="Report each dead letter to Sentry, where the project has set Sentry up.")

    @field_validator("database_url")
    @classmethod
    def _is_postgresql(cls, url: str) -> str:
        try:
            driver = with_driver(url).drivername
        except (ArgumentError, ValueError):  # a port that is no number may be a part of the password
            driver = "?"
        if driver != "postgresql+psycopg2":
            # The text must not repeat the URL, which holds a password.
            raise ValueError(_other_driver(driver))
        return url

    @field_validator("schema_name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        try:
            return check_schema_name(name)
        except ConfigError as error:
            raise ValueError(str(error)) from None

    @cached_property
    def limits(self) -> Limits:
        return Limits(
            fence_wait=self.fence_wait,
            outage_hold=min(self.outage_hold, LONGEST_HOLD),
            max_deliveries=self.max_deliveries,
            recount_lease=self.recount_lease,
            busy_delay=self.busy_delay,
            too_old=self.processed_ttl - self.window_margin / 2,
        )


def own_keys(conf: Any) -> dict[str, str]:
    """What the project has set itself: the setting's name in lower case → as it is written.

    A namespace of `config_from_object(…, namespace="CELERY")` is not a part of the name; what stands beside it is not
    Celery's, and left out. Without a namespace an upper-case HARNESS_… is taken as well.
    """
    prefix = str(conf.finalize().prefix or "")
    keys: dict[str, str] = {}
    for key in (key for layer in conf.maps[:-1] for key in layer if isinstance(key, str)):
        if prefix and key.startswith(prefix):
            keys[key.removeprefix(prefix).lower()] = key
        elif key.islower():
            keys[key] = key
        elif key.startswith("HARNESS_") and not prefix:
            keys.setdefault(key.lower(), key)
    return keys


def read(app: Celery, overrides: Mapping[str, Any]) -> Settings:
    """The settings of `app`; ConfigError names every one that is wrong and what is expected."""
    names = [field.alias or name for name, field in Settings.model_fields.items()]
    written = {key: as_it_is for key, as_it_is in own_keys(app.conf).items() if key.startswith("harness_")}
    given = {name: app.conf[written[f"harness_{name}"]] for name in names if f"harness_{name}" in written}
    given |= overrides
    if given.get("database_url") is None:
        given.pop("database_url", None)
    unknown = sorted({as_it_is for key, as_it_is in written.items() if key.removeprefix("harness_") not in names})
    unknown += sorted(f"Harness(…, {name}=…)" for name in overrides if name not in names)
    if unknown:
        raise ConfigError(_unknown(unknown, names))
    _refuse_unread(app.conf, given, names)
    given.setdefault("service", app.main or "default")
    if url := os.environ.get("HARNESS_DATABASE_URL"):
        given["database_url"] = url
    if "database_url" not in given:
        raise ConfigError(_no_database())
    try:
        return Settings(**given)
    except ValidationError as error:
        lines = [_wrong(".".join(map(str, e["loc"])), e["input"], e["msg"], url) for e in error.errors()]
        raise ConfigError("Settings that can't be used:\n  " + "\n  ".join(lines)) from None


def _wrong(name: str, value: object, why: str, from_environment: str | None) -> str:
    why = why.removeprefix("Value error, ")
    if name == "database_url":  # it holds a password
        return f"{'HARNESS_DATABASE_URL' if from_environment else 'harness_database_url'} = …: {why}"
    return f"harness_{name} = {value!r}: {why}"


def _other_driver(name: str) -> str:
    backend, _, driver = name.partition("+")
    if backend not in ("postgresql", "postgres"):
        return (
            "is no URL of PostgreSQL. One looks like postgresql://user:password@host:5432/database; in the password @ "
            "is written %40, : %3A and / %2F"
        )
    return (
        f"names the driver {driver}; the harness uses psycopg2, beside whatever the project uses. Write it without the "
        "driver: postgresql://user:password@host:5432/database"
    )


def _unknown(unknown: list[str], names: list[str]) -> str:
    told = []
    for text in unknown:
        bare = text.lower().removeprefix("harness(…, ").removesuffix("=…)").rpartition("harness_")[2]
        close = difflib.get_close_matches(bare, names, n=1)
        told.append(f"{text} (is harness_{close[0]} meant?)" if close else text)
    return f"Unknown settings: {', '.join(told)}. Known ones: {', '.join('harness_' + n for n in names)}."


def _refuse_unread(conf: Any, given: Mapping[str, Any], names: list[str]) -> None:
    """With a namespace Celery reads HARNESS_RELAY not at all, whoever wrote it thinks that it does."""
    prefix = str(conf.prefix or "")
    if not prefix:
        return
    keys = {key for layer in conf.maps[:-1] for key in layer if isinstance(key, str)}
    unread = [f"HARNESS_{n.upper()}" for n in names if f"HARNESS_{n.upper()}" in keys and n not in given]
    if "HARNESS_DATABASE_URL" in unread and os.environ.get("HARNESS_DATABASE_URL"):
        unread.remove("HARNESS_DATABASE_URL")
    if unread:
        raise ConfigError(
            f"Settings that are not read, because the app's namespace is {prefix.rstrip('_')!r}: {', '.join(unread)}. "
            f"Call them {', '.join(prefix + name for name in unread)}."
        )


def _no_database() -> str:
    text = (
        "No database: set harness_database_url in celeryconfig.py, or HARNESS_DATABASE_URL in the environment, to "
        "your PostgreSQL, for example postgresql://user:password@host:5432/billing."
    )
    if Path(".harness/env").is_file():
        return f"{text} For the one of the `harness dev` that runs in this folder: . .harness/env"
    near = difflib.get_close_matches("HARNESS_DATABASE_URL", [k for k in os.environ if k.startswith("HARNESS_")], n=1)
    if near:
        return f"{text} The environment has {near[0]}, which is not read; is HARNESS_DATABASE_URL meant?"
    return f"{text} To try the harness without one: celery -A yourapp harness dev."
