"""One case, as plain data: what is sent, what goes wrong, what is expected of the harness."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.worker.wires import Raw

if TYPE_CHECKING:
    from tests.failures.place import Place

BROKERS = ("rabbitmq", "redis")
SIDES = ("harness", "plain")

Act = Callable[["Place"], None]


@dataclass(frozen=True)
class Send:
    """`count` jobs, sent by name as a foreign producer would.

    `raw`: this message instead, to which an id and the task are added where its headers lack them; with `bare` it is
    sent as it is. `ids`: "fresh", or a text in which `{id}` is a fresh one. `copies`: each message so often.
    """

    task: str = "credit"
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    count: int = 1
    copies: int = 1
    ids: str = "{id}"
    raw: Raw | None = None
    bare: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """`said`: what goes wrong, in words. `before` happens ahead of the sending, `wrong` behind it, `after` at the end.

    `effects`, `letters` (by reason) and `waiting` are what the harness must leave behind; a job of plain Celery has
    its effect, is still with the broker, or is lost. `jobs`: how many jobs are sent, where `send` does not say.
    `settings` and `options` are those of the worker. `own`: servers that this case stops. `seconds`: how long the
    harness has. `enqueue`: on the harness the jobs go through `harness.enqueue`.
    """

    name: str
    way: int
    said: str
    send: Sequence[Send] = (Send(),)
    effects: int = 1
    letters: Mapping[str, int] = field(default_factory=dict)
    waiting: int = 0
    jobs: int | None = None
    before: Act | None = None
    wrong: Act | None = None
    after: Act | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    brokers: Sequence[str] = BROKERS
    own: frozenset[str] = frozenset()
    seconds: float = 40.0
    enqueue: bool = False
    #: Who starts the worker is the case itself.
    starts: bool = False

    @property
    def sent(self) -> int:
        return self.jobs if self.jobs is not None else sum(one.count for one in self.send)

    @property
    def shares(self) -> bool:
        """Can the same worker serve other cases, too?"""
        return not (self.settings or self.options or self.environment or self.own or self.starts)
