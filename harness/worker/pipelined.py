"""Sending rows to a broker of the Redis protocol: many in one round trip, through kombu's batches."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kombu import Producer
from kombu.exceptions import BatchPublishError

from harness.relay import Sent
from harness.store.inbox import InboxRow
from harness.worker import outgoing

#: Bytes of bodies, and messages, that are gathered for one round trip. What waits is in memory several times over.
MOST_BYTES, MOST = 4 << 20, 1000


class Pipelined:
    """Rows count as confirmed when the server has answered each of their commands without an error.

    Where it gives no answers, it may have taken some of them: nobody knows which, and all are sent again.
    """

    spoilt = False

    def __init__(self, producer: Producer) -> None:
        self.producer = producer

    def send(self, rows: Sequence[InboxRow], sent: Sent) -> Sequence[InboxRow]:
        """Send rows in their order; see `Line`."""
        gathered: list[_Gathered] = []
        size = 0
        # One command for a message, and one for each priority where the queue expires: the count is kept here.
        with self.producer.batch(max_size=MOST * 16) as batch:
            for row in rows:
                try:
                    outgoing.publish(self.producer, row)
                except outgoing.CANNOT_TRAVEL as error:
                    sent.refused[row.id] = outgoing.no_form(row, error)
                    continue
                gathered.append(_Gathered(row.id, len(_pipeline(batch).command_stack)))
                size += len(row.message.body)
                if size >= MOST_BYTES or len(gathered) >= MOST:
                    _flush(batch, gathered, sent)
                    size = 0
            _flush(batch, gathered, sent)
        return ()


class _Gathered(NamedTuple):
    """A row whose commands wait, and how many there are with those of all rows before it."""

    row: int
    end: int


class _Answers:
    """In the place of a pipeline's `execute`, which says only that something has failed."""

    def __init__(self, pipeline: Any) -> None:
        self.usual, self.all = pipeline.execute, list[Any]()

    def __call__(self) -> list[Any]:
        """Raises the server's own word, of the first command that it has refused."""
        self.all = []
        self.all = self.usual(raise_on_error=False)
        for answer in self.all:
            if isinstance(answer, Exception):
                raise answer
        return self.all


def _pipeline(batch: Any) -> Any:
    return batch.state.session.pipeline


def _flush(batch: Any, gathered: list[_Gathered], sent: Sent) -> None:
    if not gathered:
        return
    pipeline = _pipeline(batch)
    pipeline.execute = answers = _Answers(pipeline)
    begin = 0
    try:
        batch.flush()
    except BatchPublishError as error:
        raise error.__cause__ or error from None
    finally:
        del pipeline.execute
        for row, end in gathered:
            taken = answers.all[begin:end]
            if len(taken) == end - begin and not any(isinstance(one, Exception) for one in taken):
                sent.confirmed.add(row)
            begin = end
        gathered.clear()
