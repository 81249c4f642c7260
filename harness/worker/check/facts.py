"""All that the checks look at. Gathered first, so that the checks themselves touch nothing."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kombu import Connection

from harness.store.server import Server
from harness.worker.check.queues import QueueFacts, configured
from harness.worker.check.rabbitmq import RabbitMQ
from harness.worker.check.redis import Redis
from harness.worker.settings import Settings

if TYPE_CHECKING:
    from harness.worker.harness import Harness
    from harness.worker.task import JobTask

#: Celery's two names for a pool, as its module is called.
_POOLS = {"processes": "prefork", "threads": "thread", "celery.concurrency.prefork:TaskPool": "prefork"}


@dataclass(frozen=True, slots=True)
class Options:
    """What a worker's command line may say otherwise than the configuration; None: it does not."""

    pool: str | None = None
    concurrency: int | None = None
    time_limit: float | None = None
    soft_time_limit: float | None = None
    prefetch_multiplier: int | None = None


@dataclass
class Facts:
    """`database`, `redis`, `rabbitmq`: None where it was not asked, could not be reached, or is another broker."""

    harness: "Harness"
    settings: Settings
    options: Options = field(default_factory=Options)
    database: Server | None = None
    database_problem: str = ""
    redis: Redis | None = None
    rabbitmq: RabbitMQ | None = None
    broker_problem: str = ""

    @property
    def server(self) -> Server:
        """PostgreSQL, for the checks of the part `database`, which are made only where it was reached."""
        assert self.database is not None
        return self.database

    @property
    def conf(self) -> Any:
        return self.harness.app.conf

    @property
    def pool(self) -> str:
        name = str(self.options.pool or self.conf.worker_pool or "prefork")
        return _POOLS.get(name, name)

    @property
    def concurrency(self) -> int:
        return int(self.options.concurrency or self.conf.worker_concurrency or os.cpu_count() or 1)

    @property
    def prefetch(self) -> int:
        given = self.options.prefetch_multiplier
        return int(self.conf.worker_prefetch_multiplier if given is None else given)

    def jobs(self) -> "Iterator[JobTask]":
        """Every job of the app, by name."""
        self.harness.app.finalize()
        for _, task in sorted(self.harness.app.tasks.items()):
            if getattr(task, "is_job", False):
                yield task

    def hard_limit(self, task: "JobTask") -> float | None:
        """Seconds until the job's process is killed; None for never. A message may say otherwise."""
        return task.time_limit or self.options.time_limit or self.conf.task_time_limit or None

    def soft_limit(self, task: "JobTask") -> float | None:
        """Seconds until the job is told to end; None for never."""
        return task.soft_time_limit or self.options.soft_time_limit or self.conf.task_soft_time_limit or None

    def hard_limits(self) -> dict[str, float]:
        """Job → seconds, of those that have a hard limit."""
        return {task.name: limit for task in self.jobs() if (limit := self.hard_limit(task)) is not None}

    @property
    def broker(self) -> Connection:
        """Where the workers consume; not connected."""
        return self.harness.app.connection_for_read()

    @cached_property
    def transport(self) -> str:
        """amqp, redis, or what else kombu calls it; 'unknown' where the URL names none that there is."""
        try:
            return str(self.broker.transport.driver_type)
        except Exception:
            return "unknown"

    @cached_property
    def transport_options(self) -> Mapping[str, Any]:
        return dict(self.broker.transport_options or {})

    def queues(self) -> list[QueueFacts]:
        """What the workers consume: as the server has it, where that could be read, else as it is configured."""
        seen = self.rabbitmq.queues if self.rabbitmq else {}
        return [seen.get(queue.name, queue) for queue in configured(self.harness.app)]


def source(server: Server, name: str) -> str:
    source = server.settings[name].source
    where = {"user": f" for the role {server.role!r}", "database": f" for the database {server.name!r}"}
    both = f" for the role {server.role!r} in the database {server.name!r}"
    return both if source == "database user" else where.get(source, f" ({source})")
