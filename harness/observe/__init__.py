"""Who listens to the harness's events: the log, Sentry."""

from harness.core.events import Events
from harness.observe.log import write
from harness.observe.sentry import report


def subscribe_all(events: Events, *, sentry: bool = True) -> None:
    """Subscribe the log and, with `sentry`, the Sentry SDK of the process, where the project has set it up."""
    if sentry:
        events.subscribe(report)
    events.subscribe(write)
