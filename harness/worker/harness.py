"""`Harness`: what a project makes once per Celery app."""

import contextlib
import inspect
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, Literal, cast, overload
from weakref import WeakKeyDictionary

from celery import Celery
from kombu.serialization import prepare_accept_content

from harness.core.alike import Forms
from harness.core.errors import ConfigError, UsageError
from harness.core.events import Events
from harness.observe import subscribe_all
from harness.process.spec import JobSpec
from harness.store.database import Database
from harness.store.store import Store
from harness.worker import beat, made_of, steps, unlocking
from harness.worker.decode import arguments_of
from harness.worker.enqueue import Enqueues
from harness.worker.receive import Receives
from harness.worker.settings import Settings, read
from harness.worker.source import Source
from harness.worker.typed import BoundDecorator, Decorator, F, TypedJob


def every() -> "list[Harness]":
    """Every harness of this process."""
    return list(_all.values())


_all: "WeakKeyDictionary[Celery, Harness]" = WeakKeyDictionary()


class Harness(Enqueues, Receives):
    """Puts a Celery app's jobs behind the fence.

        app = Celery("billing")
        app.config_from_object("celeryconfig")
        harness = Harness(app)

        @harness.job(name="billing.credit_points")
        def credit_points(session: Session, account_id: int, points: PositiveInt) -> None: ...

    `settings` override `harness_*` of the app's configuration, without the prefix: `Harness(app, service="billing")`.
    Nothing is read or opened before it is needed. Raises ConfigError for a second one on the same app.
    """

    def __init__(self, app: Celery, **settings: Any) -> None:
        if app in _all:
            raise ConfigError(f"{app!r} has a Harness already. Use that one: Harness.of(app).")
        self.app = app
        self._overrides = settings
        self.sources: dict[str, Source] = {}
        self.events = Events()
        _all[app] = self
        steps.install(self)
        beat.install(self)
        unlocking.install(self)

    @staticmethod
    def of(app: Celery) -> "Harness":
        """The harness of `app`; made with the app's configuration if a job is the first to ask."""
        app = app._get_current_object() if hasattr(app, "_get_current_object") else app
        return _all.get(app) or Harness(app)

    @cached_property
    def settings(self) -> Settings:
        settings = read(self.app, self._overrides)
        subscribe_all(self.events, sentry=settings.sentry)
        return settings

    @cached_property
    def database(self) -> Database:
        """This process's connections; one that is forked from it has none of them."""
        return Database(self.settings.database_url, pool_size=self.settings.pool_size)

    @cached_property
    def accepts(self) -> Any:
        """The content types that are read, None for all; looked up once, for every job asks."""
        return prepare_accept_content(self.app.conf.accept_content)

    @cached_property
    def store(self) -> Store:
        return Store.of(self.settings.schema_name).with_forms(Forms(self._sent, partial(arguments_of, self.app)))

    def _sent(self, task: str) -> inspect.Signature | None:
        found = self.app.tasks.get(task)
        return found.spec.signature.sent if getattr(found, "is_job", False) else None

    @overload
    def job(self, function: F, /) -> "TypedJob[F]": ...

    @overload
    def job(self, function: None = None, /, *, bind: Literal[True], **options: Any) -> BoundDecorator: ...

    @overload
    def job(self, function: None = None, /, *, bind: Literal[False] = False, **options: Any) -> Decorator: ...

    def job(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Make a job of a function: short for `@app.task(base=JobTask, …)`.

        Takes every option of `app.task`, and `consumer`, `policy`, `permanent`, `can_replay`, `max_replays`,
        `max_age`, `effects`, `unknown`, `claim_margin`, `on_dead`, `max_in_flight` (see `JobTask`). Raises
        SignatureError when a parameter cannot be a part of the message, ConfigError for external effects without a
        time limit, UsageError for what is no plain function, and for options that are misspelt or of a wrong kind.
        """
        from harness.worker.task import JobTask

        base = options.pop("base", JobTask)
        if not (isinstance(base, type) and issubclass(base, JobTask)):
            raise UsageError(f"harness.job(base={base!r}): it is a subclass of JobTask.")

        def decorate(function: Callable[..., Any]) -> Any:
            made_of.check(function)
            made = self.app.task(base=base, lazy=False, **options)(function)
            made_of.refuse_taken(made, function)
            return made

        return decorate if function is None else decorate(function)

    def jobs(self) -> dict[str, JobSpec]:
        """Every job of the app by its task name."""
        self.app.finalize()
        return {name: task.spec for name, task in self.app.tasks.items() if getattr(task, "is_job", False)}

    def forked(self) -> None:
        """Forget the parent's connections to the database; done by itself in every process that is forked."""
        if "database" in self.__dict__:
            self.database.forked()

    def migrate(self) -> None:
        """Create or upgrade the tables in the configured database."""
        from harness.store.migrate import upgrade

        upgrade(self.settings.database_url, self.settings.schema_name)

    def close(self) -> None:
        """Close this process's connections."""
        with contextlib.suppress(KeyError):
            cast(Database, self.__dict__.pop("database")).dispose()
