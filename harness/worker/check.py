"""What a worker refuses to start with."""

from datetime import timedelta
from typing import TYPE_CHECKING

from harness.core.errors import ConfigError
from harness.core.policy import Policy

if TYPE_CHECKING:
    from harness.worker.harness import Harness


def at_start(harness: "Harness") -> None:
    """Raise ConfigError for a configuration that breaks a promise."""
    ttl_exceeds_retry_windows(harness)


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
