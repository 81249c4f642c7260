"""Every bootstep and signal handler of the harness."""

import logging
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from celery import bootsteps, signals
from celery.app.defaults import DEFAULTS

from harness.core.errors import ConfigError
from harness.worker import check, chosen, due, forked, quiet, receiving, relaying
from harness.worker.settings import own_keys
from harness.worker.transport import is_amqp, is_redis

if TYPE_CHECKING:
    from harness.worker.harness import Harness

log = logging.getLogger("harness")
CONSUMER = "harness.worker.consumer:Consumer"
#: Seconds between two looks at the relay child.
LOOK = 2.0
#: What runs beside a worker.
CHILDREN: dict[str, Callable[..., None]] = {"relay": relaying.run, "receiver": receiving.run}


def install(harness: "Harness") -> None:
    """Add the harness to its app; nothing is read from the configuration yet."""
    harness.app.steps["worker"].add(RelayStep)
    harness.app.on_after_configure.connect(_configure, sender=harness.app, weak=False)
    if harness.app.configured:
        # The signal has been and gone for an app whose configuration somebody has read before.
        _configure(harness.app)


def _configure(sender: Any, source: Any = None, **_: Any) -> None:
    if sender.conf.worker_consumer == DEFAULTS["worker_consumer"]:
        # One of the project's own is left to the check `consumer-class`.
        sender.conf.worker_consumer = CONSUMER
    if is_redis(sender.conf):
        # kombu looks for unacknowledged messages every 10 reads and 60 s only: a redelivery took 90 s instead of 15.
        options = dict(sender.conf.broker_transport_options or {})
        options.setdefault("unacked_restore_interval", 5)
        options.setdefault("unacked_restore_throttle", 5)
        # Who is killed while it looks keeps all others from looking, for 300 s by kombu's default: nobody gets the
        # jobs of a dead worker meanwhile. A look takes milliseconds, and two at once put no message back twice.
        options.setdefault("unacked_mutex_expire", 10)
        sender.conf.broker_transport_options = options
        if "broker_channel_error_retry" not in own_keys(sender.conf):
            # What the server refuses (READONLY in a fail-over, OOM) would end the worker: it connects again instead.
            sender.conf.broker_channel_error_retry = True


class RelayStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Checks the configuration, then keeps one relay running beside the worker, unless `harness_relay = "off"`.

    Likewise a receiver, where the app declares sources, unless `harness_receive = "off"`. They start before the pool,
    while the worker has no threads.
    """

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        self.pids: dict[str, int] = {}
        self.entry: Any = None
        super().__init__(worker, **kwargs)

    def create(self, worker: Any) -> Any:
        from harness.worker.harness import Harness

        self.harness = Harness.of(worker.app)
        forked.begin()
        quiet.install()
        try:
            check.at_start(self.harness, _options(worker))
            if self._receives:
                chosen.chosen(self.harness)
        except ConfigError as error:
            log.critical("%s", error)
            raise SystemExit("harness: the worker does not start; the CRITICAL line of its log says why") from None
        return self

    def start(self, worker: Any) -> None:
        forked.begin()  # again: others have had their turn, and may have opened what all processes shall have
        settings = self.harness.settings
        if settings.relay != "off":
            self._start("relay")
        if self._receives:
            self._start("receiver")
        if self.pids:
            self.entry = worker.timer.call_repeatedly(LOOK, self._look)

    @property
    def _receives(self) -> bool:
        return self.harness.settings.receive != "off" and bool(self.harness.sources)

    def _start(self, name: str) -> None:
        self.pids[name] = relaying.start_child(self.harness, CHILDREN[name], name)

    def _look(self) -> None:
        for name, pid in self.pids.items():
            if not relaying.alive(pid):
                log.warning("the %s has ended; starting another one", name)
                self._start(name)

    def stop(self, worker: Any) -> None:
        if self.entry is not None:
            self.entry.cancel()
        pids, self.pids = self.pids, {}
        for pid in pids.values():
            relaying.end(pid)
        forked.end()

    terminate = stop


def _options(worker: Any) -> check.Options:
    """What the worker was told on its command line, where it was."""
    pool = getattr(worker, "pool_cls", None)
    return check.Options(
        # Celery has the class by now: celery.concurrency.prefork.
        pool=pool.__module__.rpartition(".")[2] if isinstance(pool, type) else pool,
        concurrency=getattr(worker, "concurrency", None),
        time_limit=getattr(worker, "time_limit", None),
        soft_time_limit=getattr(worker, "soft_time_limit", None),
        prefetch_multiplier=getattr(worker, "prefetch_multiplier", None),
    )


@signals.worker_process_init.connect  # type: ignore[untyped-decorator]
def _forked(sender: Any = None, **_: Any) -> None:
    """In every child of the pool: end with the worker, and publish with the broker's confirm."""
    from harness.worker.harness import every

    forked.end_with_worker(signal.SIGKILL)
    for harness in every():
        _confirm(harness.app)


@signals.beat_init.connect  # type: ignore[untyped-decorator]
def _beat(sender: Any = None, **_: Any) -> None:
    """In beat, alone or inside of a worker, before its first look at the schedule."""
    due.install(sender.app, sender.scheduler)


@signals.beat_embedded_init.connect  # type: ignore[untyped-decorator]
def _beat_beside_a_worker(sender: Any = None, **_: Any) -> None:
    """A beat that goes on after its worker has died would send everything beside the beat of the next one, for ever."""
    forked.end_with_worker()


def _confirm(app: Any) -> None:
    """Without it a message that RabbitMQ never got counts as sent, and what comes after a job would be lost.

    Not in the parent, whose event loop would wait for each of its own events.
    """
    if is_amqp(app.conf):
        options = dict(app.conf.broker_transport_options or {})
        options.setdefault("confirm_publish", True)
        app.conf.broker_transport_options = options
