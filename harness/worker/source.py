"""A declared source: a queue of somebody else's messages, how they are read, and the job that each becomes."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kombu import Exchange, Queue, binding

from harness.core.errors import UsageError
from harness.core.incoming import Delivered, Incoming
from harness.core.signature import Signature
from harness.process.spec import JobSpec
from harness.receive import Fields

if TYPE_CHECKING:
    from harness.worker.task import JobTask

Reader = Callable[[Delivered], Incoming]
#: What is wrong with a stream as a source.
NO_STREAMS = (
    "a RabbitMQ stream keeps what was read, and tells no receiver where the last one has stopped: messages would be "
    "missed, or come again for ever. Bind a quorum or classic queue to the exchange that feeds the stream."
)
EXCHANGE_TYPES = ("direct", "fanout", "topic", "headers")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class Source:
    """One source of one app. `queue` is kombu's, with the exchange that it is bound to."""

    name: str
    job: "JobTask" = field(repr=False)
    queue: Queue = field(repr=False)
    read: Reader = field(repr=False)
    declare: bool = True

    @property
    def spec(self) -> JobSpec:
        """What the fence, and the letter, of a message that could not be read belong to: the source, not its job."""
        job = self.job.spec
        consumer = f"{job.service}/receive:{self.name}"
        return JobSpec(job.service, job.task, consumer, Signature.of(_nothing, {}))


def _nothing() -> None:
    """The signature of a message that is not read yet."""


def make(
    known: Mapping[str, Source],
    name: str,
    task: "JobTask",
    queue: str | Queue,
    exchange: str | Exchange | None,
    exchange_type: str,
    routing_keys: Sequence[str],
    read: Reader | None,
    declare: bool,
    queue_arguments: Mapping[str, Any] | None,
) -> Source:
    """The source. UsageError, with what to do, for what can't be one."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(f"source {name!r}: a name has 1 to 100 letters, digits, '.', '_' and '-', such as 'github'.")
    if name in known:
        raise UsageError(f"There is a source {name!r} already. Give this one another name.")
    made = queue if isinstance(queue, Queue) else _queue(name, queue, exchange, exchange_type, routing_keys)
    if isinstance(queue, Queue) and (exchange is not None or routing_keys):
        raise UsageError(f"source {name!r}: a Queue has its own exchange and routing keys; leave these out.")
    if queue_arguments:
        made.queue_arguments = {**(made.queue_arguments or {}), **queue_arguments}
    if (made.queue_arguments or {}).get("x-queue-type") == "stream":
        raise UsageError(f"source {name!r}: {NO_STREAMS}")
    taken = next((other.name for other in known.values() if other.queue.name == made.name), None)
    if taken:
        raise UsageError(
            f"source {name!r}: the queue {made.name!r} is read by the source {taken!r} already, and each message would "
            "go to one of the two. Give it a queue of its own, bound to the same exchange, or one `read` for both."
        )
    if not made.name:
        raise UsageError(f"source {name!r}: its queue has no name, so nothing would stay while no receiver runs.")
    reader = Fields() if read is None else read
    if not callable(reader) or inspect.isclass(reader):
        raise UsageError(
            f"source {name!r}: read={read!r}. Pass Fields(…), CloudEvents(…), or a function that takes a Delivered and "
            "returns an Incoming."
        )
    _check_arguments(name, task, reader)
    return Source(name, task, made, reader, declare)


def _queue(name: str, queue: str, exchange: Any, kind: str, routing_keys: Sequence[str]) -> Queue:
    if not isinstance(queue, str) or not queue or len(queue.encode()) > 255:
        raise UsageError(f"source {name!r}: queue={queue!r}. It is the name of a queue, or a kombu Queue.")
    if isinstance(routing_keys, str):
        raise UsageError(f"source {name!r}: routing_keys={routing_keys!r}. It is a list: [{routing_keys!r}].")
    if exchange is None or exchange == "":
        if routing_keys:
            raise UsageError(f"source {name!r}: routing_keys= without exchange=. Name the exchange that has them.")
        return Queue(queue, Exchange(""), routing_key=queue, durable=True)
    if isinstance(exchange, str):
        if kind not in EXCHANGE_TYPES:
            raise UsageError(f"source {name!r}: exchange_type={kind!r}. Known: {', '.join(EXCHANGE_TYPES)}.")
        exchange = Exchange(exchange, type=kind, durable=True)
    if exchange.type in ("direct", "topic") and not routing_keys:
        example = "['#'] for all messages" if exchange.type == "topic" else f"[{queue!r}]"
        raise UsageError(
            f"source {name!r}: a {exchange.type} exchange needs routing_keys=, for example {example}; without one "
            "nothing would come."
        )
    keys = [*routing_keys] or [""]
    if len(keys) == 1:
        return Queue(queue, exchange, routing_key=keys[0], durable=True)
    bound = [binding(exchange, routing_key=key) for key in keys]
    return Queue(queue, bindings=bound, durable=True)


def _check_arguments(name: str, task: "JobTask", reader: Any) -> None:
    """Arguments that are said by name can be compared with the handler before any message comes."""
    wanted = getattr(reader, "arguments", None)
    if not isinstance(wanted, Mapping):
        return
    parameters = task.signature_of_handler.sent.parameters
    kinds = inspect.Parameter
    named = {n: p for n, p in parameters.items() if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)}
    any_name = any(p.kind is kinds.VAR_KEYWORD for p in parameters.values())
    unknown = [n for n in wanted if n not in named]
    if unknown and not any_name:
        raise UsageError(
            f"source {name!r}: {task.name} has no parameter {unknown[0]!r} that a message can carry. It has: "
            f"{', '.join(named) or 'none'}."
        )
    missing = [n for n, p in named.items() if p.default is kinds.empty and n not in wanted]
    if missing:
        raise UsageError(
            f"source {name!r}: nothing says where {missing[0]!r} of {task.name} stands in a message. Add it to "
            "arguments=, or give the parameter a default."
        )
