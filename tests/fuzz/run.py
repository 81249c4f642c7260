"""A run: a real worker, messages in batches, and the books after each."""

from __future__ import annotations

import base64
import json
import pickle
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import uuid4

import psutil

from harness.worker.wire import GENERATION
from tests.fuzz import account
from tests.fuzz.account import Books, Looked
from tests.fuzz.mutate import Item, item
from tests.fuzz.sending import Sender
from tests.worker.running import ForkedWorker, State, client
from tests.worker.wires import Wires

BATCH = 250
#: Seconds without any progress after which what is missing counts as lost.
PATIENCE = 90.0
#: What has been tried twice waits for a day: the retries of all batches would soon be all that the worker does.
_PUT_OFF = "UPDATE core.inbox SET available_at = now() + interval '1 day' WHERE attempts > 1"
#: Megabytes by which the worker's parent may grow.
GROWTH = 150.0


class Broken(AssertionError):
    """The worker has not kept a promise. `items` are those in question."""

    def __init__(self, text: str, items: Sequence[Item] = ()) -> None:
        super().__init__(text)
        self.items = list(items)


class Run:
    """One worker on one broker and one database."""

    def __init__(self, broker: str, database: str, results: str, folder: Path, say: Callable[[str], None]) -> None:
        self.state, self.wires, self.sender = State(database), Wires(broker), Sender(broker)
        self.client, self.say = client(broker), say
        self.worker = ForkedWorker(
            broker,
            database,
            folder / "worker.log",
            result_backend=results,
            harness_outage_hold=3.0,
            # Longer than a batch lies in the queue: else what waits in it is sent again and again.
            harness_lease=120.0,
            result_backend_always_retry=False,
            environment={"CANVAS": "1"},
        )
        try:
            self.worker.start()
        except BaseException:
            self.close()
            raise
        assert self.worker.process is not None
        self.parent = psutil.Process(self.worker.process.pid)
        self.sent: list[Item] = []
        self.unfinished = 0
        #: Bytes of the worker's log that have been looked at, and how often it said there that it is ready.
        self.log_read, self.ready = 0, 0
        self.ends: Counter[str] = Counter()

    def close(self) -> None:
        self.worker.stop()
        self.client.close()
        self.wires.close()
        self.sender.close()
        self.state.close()

    def send(self, items: Sequence[Item]) -> None:
        """All of them, a batch at a time. Raises Broken."""
        before = self.memory()
        for start in range(0, len(items), BATCH):
            batch = [one for one in items[start : start + BATCH] if self.sender.send(one)]
            self.sent += batch
            self.account_for(batch)
            self.state.sql(_PUT_OFF)
            if start == 0:
                before = self.memory()  # what is imported and cached once is there by now
            self.say(f"{len(self.sent)} messages, the parent has {self.memory():.0f} MB")
        grown = self.memory() - before
        if grown > GROWTH:
            raise Broken(f"the worker's parent has grown by {grown:.0f} MB")
        self.goes_on(self.sent)

    def account_for(self, batch: Sequence[Item]) -> None:
        """Wait until there is a trace of each."""
        left, moved = [Looked(one) for one in batch], time.monotonic()
        while left:
            self.must_live(batch)
            found = account.missing(self.state, left)
            if len(found) < len(left):
                moved = time.monotonic()
            left = found
            if left and time.monotonic() - moved > PATIENCE:
                lost = [one.item for one in left]
                raise Broken(f"{len(lost)} messages are lost: {self.worker.text()[-3000:]}", lost)
            time.sleep(0.1)

    def goes_on(self, items: Sequence[Item]) -> None:
        """The queue gets empty, a valid job runs on every slot, and the books are right."""
        deadline = time.monotonic() + PATIENCE
        while self.wires.left():
            self.must_live(items)
            if time.monotonic() > deadline:
                raise Broken(
                    f"the queue is not empty, {self.wires.left()} are left: {self.worker.text()[-3000:]}", items
                )
            time.sleep(0.1)
        markers = [uuid4().hex for _ in range(4)]
        for marker in markers:
            self.client.send_task("credit", task_id=marker)
        while not all(self.state.fence(marker) == "done" for marker in markers):
            self.must_live(items)
            if time.monotonic() > deadline + PATIENCE:
                raise Broken(f"a valid job does not run any more: {self.worker.text()[-3000:]}", items)
            time.sleep(0.1)
        self.must_live(items)
        books = Books(self.state)
        if wrong := [*books.doubled(), *books.unfounded()]:
            raise Broken("\n".join(wrong[:20]), items)
        self.ends.update(books.of(one) for one in items)

    def ends_well(self, items: Sequence[Item]) -> None:
        """After its end nothing that was in its hands has come back, but for what goes on by itself: the relay's copies
        of jobs that wait, and next steps."""
        self.worker.stop()
        ids = {key for one in items for key in account.keys_of(one)}
        while (raw := self.wires.take()) is not None:
            known = isinstance(raw.headers.get("id"), str) and raw.headers["id"] in ids
            if known and GENERATION not in raw.headers and not raw.headers.get("parent_id"):
                raise Broken(f"{raw.headers['id']} comes back when the worker ends", items)
            self.unfinished += 1

    def must_live(self, items: Sequence[Item]) -> None:
        with self.worker.log.open("rb") as log:
            log.seek(self.log_read)
            more = log.read()
        self.log_read += len(more)
        self.ready += more.count(b" ready.")
        if not self.worker.alive or self.ready != 1:
            raise Broken(f"the worker is gone, or has lost its connection: {self.worker.text()[-4000:]}", items)

    def memory(self) -> float:
        return self.parent.memory_info().rss / 1e6

    def troubles(self) -> Counter[str]:
        """Log lines that tell of a child's death, or of an error that nobody foresaw."""
        found = re.findall(
            r"(recording the outcome of|WorkerLostError|exited with|Unrecoverable|Error in timer|"
            r"what comes after job \S+ went wrong: \w+|can't be sent now)",
            self.worker.text(),
        )
        return Counter(re.sub(r"job \S+", "job", line) for line in found)


def make(seed: int, count: int, amqp: bool) -> list[Item]:
    """The messages of a run."""
    return [item(seed, number, amqp) for number in range(count)]


def save(items: Sequence[Item], why: str) -> Path:
    """Write messages to a file that `--replay` reads."""
    with tempfile.NamedTemporaryFile("w", prefix="fuzz-", suffix=".json", delete=False) as file:
        json.dump({"why": why[:5000], "items": [base64.b64encode(pickle.dumps(one)).decode() for one in items]}, file)
    return Path(file.name)


def load(path: Path) -> list[Item]:
    """What `save` wrote."""
    return [pickle.loads(base64.b64decode(one)) for one in json.loads(path.read_text())["items"]]
