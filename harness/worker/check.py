"""What a worker refuses to start with."""

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

from harness.core.errors import ConfigError
from harness.core.policy import Policy
from harness.store import migrate

if TYPE_CHECKING:
    from harness.worker.harness import Harness

log = logging.getLogger("harness")


def at_start(harness: "Harness") -> None:
    """Raise ConfigError for a configuration that breaks a promise."""
    ttl_exceeds_retry_windows(harness)
    schema_is_migrated(harness)


def schema_is_migrated(harness: "Harness") -> None:
    """The tables must be there, and not be older than the code can work on. A database that is away stops no start."""
    settings = harness.settings
    try:
        current = migrate.current(settings.database_url, settings.schema_name)
    except DBAPIError as error:
        log.warning("the schema could not be checked, PostgreSQL is away: %s", str(error.orig).splitlines()[0])
        return
    stand, how = migrate.stand(current), "Create or upgrade them: celery -A yourapp harness migrate"
    if stand in (migrate.Stand.MISSING, migrate.Stand.TOO_OLD):
        has = "has no tables of the harness" if current is None else f"has tables of the older release {current}"
        raise ConfigError(f"The schema {settings.schema_name!r} of the database {has}. {how}")
    if stand is migrate.Stand.BEHIND:
        log.warning(
            "the schema %r is at %s, this release brings %s. It works on both, but what is new in it may need the "
            "newer one. %s",
            settings.schema_name,
            current,
            migrate.newest(),
            how,
        )


def ttl_exceeds_retry_windows(harness: "Harness") -> None:
    """A fence must outlive the longest time that its job can go on being retried, by a margin."""
    settings = harness.settings
    policies: dict[str, Policy] = {f"job {name}": spec.policy for name, spec in harness.jobs().items()}
    policies |= {f"queue {name}": policy for name, policy in settings.policies.items()}
    for who, policy in policies.items():
        window = policy.longest_window()
        needed = None if window is None else window + settings.window_margin
        if needed is not None and settings.processed_ttl > needed:
            continue
        span = "has no end" if window is None else f"can last {timedelta(seconds=round(window))}"
        raise ConfigError(
            f"The retries of {who} {span}, but its fence is kept for {timedelta(seconds=settings.processed_ttl)} only "
            f"(harness_processed_ttl = {settings.processed_ttl:g} s), and it must be kept for longer by a margin of "
            f"{timedelta(seconds=settings.window_margin)}. Otherwise a late copy could find no fence and run again. "
            "Raise harness_processed_ttl, or bound the policy."
        )
