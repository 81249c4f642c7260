"""The scheduled tasks: `harness.prune` and `harness.replay`, in `beat_schedule` unless switched off."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.worker.harness import Harness

PRUNE, REPLAY = "harness.prune", "harness.replay"


def install(harness: "Harness") -> None:
    """Register the two tasks with the app and put them into its schedule."""
    app = harness.app

    @app.task(name=PRUNE, base=_plain(), ignore_result=True, acks_late=True, shared=False)  # type: ignore[untyped-decorator]
    def prune() -> dict[str, int]:
        """Delete fences and letters that nothing can need any more."""
        from harness.prune import prune as run

        settings = harness.settings
        return run(
            harness.database,
            harness.store,
            settings.service,
            processed_ttl=settings.processed_ttl,
            letters_ttl=settings.letters_ttl,
            events=harness.events,
        )

    @app.task(name=REPLAY, base=_plain(), ignore_result=True, acks_late=True, shared=False)  # type: ignore[untyped-decorator]
    def replay(letter_ids: list[int] | None = None, actor: str = "harness.replay") -> dict[str, int]:
        """Replay these letters or, without any, sweep the letters of every job that has a gate."""
        from harness.replay import replay_many, sweep

        if letter_ids is not None:
            return replay_many(
                harness.database, harness.store, harness.settings.service, letter_ids, actor, harness.events
            )
        return sweep(harness.database, harness.store, harness.jobs(), actor, harness.events)

    app.on_after_configure.connect(_schedule, sender=app, weak=False)
    app.on_after_finalize.connect(_schedule, sender=app, weak=False)


def _plain() -> type:
    from celery import Task

    return Task  # type: ignore[no-any-return]


def _schedule(sender: Any, **_: Any) -> None:
    """Our entries go below the project's own, so that an entry of the same name replaces ours."""
    ours: dict[str, Any] = {}
    for name, key, default in (
        (PRUNE, "harness_prune_every", 3600.0),
        (REPLAY, "harness_replay_every", 60.0),
    ):
        every = sender.conf.get(key, default)
        if every is not None:
            ours[name] = {"task": name, "schedule": float(every), "options": {"expires": float(every)}}
    theirs = dict(sender.conf.beat_schedule or {})
    if any(name not in theirs for name in ours):
        sender.conf.beat_schedule = {**ours, **theirs}
