"""What the producer was told of each job: the history that the ledger is checked against."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from tests.soak.kinds import Kind


class Answer(StrEnum):
    """As in Jepsen: `ok` must be true, `unknown` may be, `refused` must not."""

    ok = "ok"
    unknown = "unknown"
    refused = "refused"


@dataclass
class Entry:
    """One job. `after`: it is the next step of a job in the history, and there if that one is done."""

    job: str
    kind: Kind
    answer: Answer
    after: str | None = None


class History:
    """Kept in memory and, for whoever wants to know afterwards, line by line in a file."""

    def __init__(self, file: Path) -> None:
        self.entries: dict[str, Entry] = {}
        self.operations = 0
        self._file = file.open("a")
        self._lock = threading.Lock()

    def note(self, job: str, kind: Kind, answer: Answer, after: str | None = None) -> None:
        """Of a job that is sent twice the best answer counts."""
        entry = Entry(job, kind, answer, after)
        with self._lock:
            known = self.entries.get(job)
            order = list(Answer)
            if known is None or order.index(answer) < order.index(known.answer):
                self.entries[job] = entry
            self.operations += 1
            self._file.write(json.dumps(asdict(entry)) + "\n")
            self._file.flush()

    def doubt(self) -> None:
        """The broker has forgotten all that it had: what was not enqueued may have been lost with that."""
        with self._lock:
            for entry in self.entries.values():
                if entry.kind.door != "enqueue" and entry.answer is Answer.ok:
                    entry.answer, entry.after = Answer.unknown, None

    def taken(self) -> int:
        """How many jobs were not refused: what a check has to look at."""
        with self._lock:
            return sum(entry.answer is not Answer.refused for entry in self.entries.values())

    def close(self) -> None:
        self._file.close()
