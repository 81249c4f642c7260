"""The sign of life of a receiver: it takes in from these sources, on this host."""

import platform
from collections.abc import Iterable
from typing import TYPE_CHECKING

from harness.relay import SignOfLife
from harness.store.presence import RECEIVER, receiver_name

if TYPE_CHECKING:
    from harness.worker.harness import Harness


class ReceivesFrom:
    """Given again and again with the sources whose queues are open just now; writes rarely, and raises nothing."""

    def __init__(self, harness: "Harness") -> None:
        self.harness = harness
        self._sign: SignOfLife | None = None

    def give(self, sources: Iterable[str]) -> None:
        """Leave a sign for each, if none of them is fresh or other sources are open than before."""
        host = platform.node() or "?"
        names = tuple(sorted(receiver_name(source, host) for source in sources))
        if self._sign is None or self._sign.names != names:
            harness = self.harness
            self._sign = SignOfLife(harness.database, harness.store, harness.settings.service, RECEIVER, *names)
        if names:
            self._sign.give()
