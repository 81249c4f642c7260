"""The settings, as they stand in `celeryconfig.py` with the prefix `harness_`."""

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from celery import Celery
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, field_validator
from sqlalchemy.exc import ArgumentError

from harness.core.errors import ConfigError
from harness.core.policy import Policy
from harness.process.spec import Limits
from harness.store.database import with_driver

DAY = 86_400.0


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
    outage_hold: PositiveFloat = Field(60.0, description="How long a message is held while PostgreSQL is away.")
    max_deliveries: PositiveInt = Field(
        5, description="Deliveries without an outcome before a job is dead (`crashed`)."
    )
    policies: Mapping[str, Policy] = Field({}, description="A retry policy per queue.")
    relay: Literal["worker", "off"] = Field("worker", description="Does each worker start a relay?")
    relay_poll: PositiveFloat = Field(0.5, description="How often an idle relay looks for due rows.")
    relay_batch: PositiveInt = Field(100, description="Rows that a relay leases at once.")
    lease: PositiveFloat = Field(300.0, description="Until a dispatched row may be sent again; doubles each time.")
    lease_longest: PositiveFloat = Field(6 * 3600.0, description="The longest lease.")
    recount_lease: PositiveFloat = Field(60.0, description="The lease of a job that was redelivered by the broker.")
    busy_delay: PositiveFloat = Field(5.0, description="When a copy that found its job at work is looked at again.")
    processed_ttl: float = Field(7 * DAY, ge=DAY, description="How long a fence is kept; at least a day.")
    letters_ttl: PositiveFloat = Field(90 * DAY, description="How long a resolved or discarded letter is kept.")
    window_margin: PositiveFloat = Field(DAY / 2, description="By how much processed_ttl must exceed the retry window.")
    prune_every: PositiveFloat | None = Field(3600.0, description="Beat's interval for harness.prune; None: off.")
    replay_every: PositiveFloat | None = Field(60.0, description="Beat's interval for harness.replay; None: off.")
    sentry: bool = Field(True, description="Report each dead letter to Sentry, where the project has set Sentry up.")

    @field_validator("database_url")
    @classmethod
    def _is_postgresql(cls, url: str) -> str:
        try:
            driver = with_driver(url).drivername
        except ArgumentError:
            driver = "?"
        if driver != "postgresql+psycopg2":
            # The text must not repeat the URL, which holds a password.
            raise ValueError("is no URL of PostgreSQL: postgresql+psycopg2://user:password@host/database")
        return url

    @cached_property
    def limits(self) -> Limits:
        return Limits(
            fence_wait=self.fence_wait,
            outage_hold=self.outage_hold,
            max_deliveries=self.max_deliveries,
            recount_lease=self.recount_lease,
            busy_delay=self.busy_delay,
            too_old=self.processed_ttl - self.window_margin / 2,
        )


def read(app: Celery, overrides: Mapping[str, Any]) -> Settings:
    """The settings of `app`; ConfigError names every one that is wrong and what is expected."""
    names = [field.alias or name for name, field in Settings.model_fields.items()]
    given = {name: value for name in names if (value := app.conf.get(f"harness_{name}", _MISSING)) is not _MISSING}
    given |= overrides
    unknown = sorted(
        key for key in app.conf if key.startswith("harness_") and key.removeprefix("harness_") not in names
    )
    if unknown:
        raise ConfigError(
            f"Unknown settings: {', '.join(unknown)}. Known ones: {', '.join('harness_' + n for n in names)}."
        )
    given.setdefault("service", app.main or "default")
    if url := os.environ.get("HARNESS_DATABASE_URL"):
        given["database_url"] = url
    if "database_url" not in given:
        raise ConfigError(
            "No database: set harness_database_url in celeryconfig.py, or HARNESS_DATABASE_URL in the environment, to "
            "your PostgreSQL, for example postgresql+psycopg2://user:password@localhost/billing. To try the harness "
            "without one: celery -A yourapp harness dev."
        )
    try:
        return Settings(**given)
    except ValidationError as error:
        lines = [_wrong(".".join(map(str, e["loc"])), e["input"], e["msg"]) for e in error.errors()]
        raise ConfigError("Settings that can't be used:\n  " + "\n  ".join(lines)) from None


def _wrong(name: str, value: object, why: str) -> str:
    shown = "…" if name == "database_url" else repr(value)  # it holds a password
    return f"harness_{name} = {shown}: {why}"


_MISSING = object()
