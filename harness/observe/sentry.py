"""Sentry: one event per dead letter, tagged and grouped by its fingerprint; none for a retry."""

import sys

from harness.core.events import Event, JobDead


def report(event: Event) -> None:
    """Send a dead letter's event. The SDK queues it; its own thread sends it, so a slow Sentry holds nothing up.

    Told before the log, whose line of a dead letter is an error and would be a second event of it.
    """
    # Whoever has set the SDK up has imported it; nobody else pays for the import.
    if not isinstance(event, JobDead) or "sentry_sdk" not in sys.modules:
        return
    import sentry_sdk
    from sentry_sdk.integrations.logging import ignore_logger

    if not sentry_sdk.get_client().is_active():
        return
    ignore_logger("harness.events")
    with sentry_sdk.new_scope() as scope:
        scope.fingerprint = ["harness", event.consumer, str(event.reason), event.fingerprint]
        for key, value in (
            ("job_id", event.job_id),
            ("task", event.task),
            ("reason", str(event.reason)),
            ("service", event.service),
            ("correlation_id", event.correlation_id or ""),
        ):
            scope.set_tag(key, value[:200])
        scope.set_context(
            "dead letter",
            {"letter_id": event.letter_id, "attempts": event.attempt, "traceback": event.traceback},
        )
        scope.capture_event(
            {
                "level": "error",
                "logger": "harness",
                "message": f"{event.task}: dead letter {event.letter_id} ({event.reason}): {event.error_type}",
            }
        )
