"""The scheduled tasks: `harness.prune`, `harness.replay`, `harness.alert`, in `beat_schedule` unless switched off.

Each may run any number of times at once and be delivered more than once: two beats do no harm.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import tenacity

from harness.observe.unalerted import tell_forgotten
from harness.relay import SignOfLife
from harness.store.database import DatabaseAway
from harness.store.presence import BEAT
from harness.worker.decode import arguments_of
from harness.worker.settings import own_keys

if TYPE_CHECKING:
    from harness.worker.harness import Harness

log = logging.getLogger("harness")
PRUNE, REPLAY, ALERT = "harness.prune", "harness.replay", "harness.alert"
_EVERY = ((PRUNE, "prune_every", 3600.0), (REPLAY, "replay_every", 60.0), (ALERT, "alert_every", 60.0))


def install(harness: "Harness") -> None:
    """Register the tasks with the app and put them into its schedule."""
    from celery import Task

    app = harness.app
    options: dict[str, Any] = {"base": Task, "acks_late": True, "shared": False}

    @app.task(name=PRUNE, ignore_result=True, **options)  # type: ignore[untyped-decorator]
    def prune() -> dict[str, int]:
        """Delete fences and letters that nothing can need any more."""
        _seen(harness, PRUNE)
        return _patiently(harness, partial(run_prune, harness))

    @app.task(name=REPLAY, **options)  # type: ignore[untyped-decorator]
    def replay(letter_ids: list[int] | None = None, actor: str = REPLAY, reason: str | None = None) -> dict[str, int]:
        """Replay these letters or, without any, sweep the letters of every job that has a gate."""
        from harness.replay import replay_many

        if letter_ids is None:
            _seen(harness, REPLAY)
            return _patiently(harness, partial(run_sweep, harness, actor))
        service = harness.settings.service
        return replay_many(harness.database, harness.store, service, letter_ids, actor, harness.events, reason=reason)

    @app.task(name=ALERT, ignore_result=True, **options)  # type: ignore[untyped-decorator]
    def alert() -> dict[str, int]:
        """Report the dead letters whose own process could not: it died right after the verdict."""
        return _patiently(harness, partial(run_alert, harness))

    schedule = partial(_schedule, harness)
    app.on_after_configure.connect(schedule, sender=app, weak=False)
    app.on_after_finalize.connect(schedule, sender=app, weak=False)
    if app.configured:
        schedule(app)


def run_prune(harness: "Harness", progress: Callable[[str, int], None] | None = None) -> dict[str, int]:
    """Prune by the app's settings; see `harness.prune`."""
    from harness.prune import prune

    settings = harness.settings
    return prune(
        harness.database,
        harness.store,
        settings.service,
        processed_ttl=settings.processed_ttl,
        letters_ttl=settings.letters_ttl,
        events=harness.events,
        progress=progress,
    )


def run_sweep(harness: "Harness", actor: str) -> dict[str, int]:
    """Sweep the letters of the app's jobs; see `harness.replay.sweep`."""
    from harness.replay import sweep

    decode = partial(arguments_of, harness.app)
    return sweep(harness.database, harness.store, harness.jobs(), actor, harness.events, decode)


def run_alert(harness: "Harness") -> dict[str, int]:
    """Report forgotten letters; see `harness.observe.unalerted`."""
    settings = harness.settings  # read first: it subscribes the log and Sentry
    return {"reported": tell_forgotten(harness.database, harness.store, settings.service, harness.events)}


def _seen(harness: "Harness", task: str) -> None:
    """A sweep runs because a beat has sent it: `harness check` asks for that."""
    SignOfLife(harness.database, harness.store, harness.settings.service, BEAT, task).give()


def _patiently(harness: "Harness", run: Callable[[], dict[str, int]]) -> dict[str, int]:
    """A database that is away for a moment is waited for, as by a job."""
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(DatabaseAway),
        wait=tenacity.wait_random_exponential(multiplier=0.5, max=10),
        stop=tenacity.stop_after_delay(harness.settings.limits.outage_hold),
        reraise=True,
    )
    return retrying(run)


def _schedule(harness: "Harness", sender: Any, **_: Any) -> None:
    """Our entries go below the project's own, so that an entry of the same name replaces ours."""
    ours: dict[str, Any] = {}
    written = own_keys(sender.conf)
    for name, key, default in _EVERY:
        every = harness._overrides.get(key, sender.conf.get(written.get(f"harness_{key}", ""), default))
        if every is not None:
            # A run that nobody came to before the next one is due is not worth running.
            options = {"expires": float(every), "ignore_result": True}
            ours[name] = {"task": name, "schedule": float(every), "options": options}
    theirs = dict(sender.conf.beat_schedule or {})
    if any(name not in theirs for name in ours):
        sender.conf.beat_schedule = {**ours, **theirs}
