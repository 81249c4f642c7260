"""Which sources a receiver reads, and that each of them can be."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.core.errors import ConfigError, UsageError
from harness.core.incoming import Incoming
from harness.worker.receive import entry_of
from harness.worker.source import Source
from harness.worker.transport import is_redis

if TYPE_CHECKING:
    from harness.worker.harness import Harness


def chosen(harness: "Harness", names: Sequence[str] = ()) -> list[Source]:
    """The sources of these names, all without any. ConfigError for what can't be received."""
    harness.app.finalize()
    known = harness.sources
    unknown = [name for name in names if name not in known]
    if unknown:
        listed = ", ".join(known) or "none"
        raise ConfigError(f"The app has no source {unknown[0]!r}. Its sources: {listed}.")
    if not known:
        raise ConfigError('The app declares no source: harness.source("name", job=…, queue=…).')
    sources = [known[name] for name in names] or list(known.values())
    conf = harness.app.conf
    own = {conf.task_default_queue, *(queue.name for queue in conf.task_queues or ())}
    for source in sources:
        if source.queue.name in own:
            raise ConfigError(
                f"The source {source.name!r} reads the queue {source.queue.name!r}, which the workers read as well: "
                "each message would go to one of the two. Give the source a queue of its own."
            )
        bound = [source.queue.exchange, *(one.exchange for one in source.queue.bindings or ())]
        if is_redis(conf) and any(exchange is not None and exchange.type == "fanout" for exchange in bound):
            raise ConfigError(
                f"The source {source.name!r}: a fanout exchange on a Redis-protocol broker keeps nothing for a "
                "receiver that is away. Use a topic exchange, or a plain queue."
            )
        # Whatever is wrong with the job's route is wrong for each message: it must not make letters of all of them.
        try:
            entry_of(source.job, Incoming(id="route"), source.name)
        except UsageError as error:
            raise ConfigError(f"The source {source.name!r}: {error}") from error
    return sources
