"""Way 15: what the broker itself loses. On the harness the jobs are enqueued: the inbox has them until they end."""

from tests.failures.case import Case, Send
from tests.failures.place import QUEUE, Place
from tests.worker.wires import Wires


def purge(place: Place) -> None:
    """Somebody empties the queue while a job is at work and others wait behind it."""
    place.at_work()
    place.wait(0.5)
    wires = Wires(place.url)
    wires.channel.queue_purge(QUEUE)
    wires.close()


def flush(place: Place) -> None:
    place.at_work()
    place.wait(0.5)
    wires = Wires(place.url)
    wires.channel.client.flushdb()
    wires.close()


def delete(place: Place) -> None:
    place.at_work()
    place.wait(0.5)
    place.api("DELETE", f"queues/{place.vhost}/{QUEUE}")


_SLOW = [Send("credit", {"pause": 1.5}, 6)]

CASES = [
    Case(
        "queue emptied",
        15,
        "queue.purge, or FLUSHDB, with jobs in it",
        _SLOW,
        6,
        wrong=purge,
        enqueue=True,
        brokers=("rabbitmq",),
        seconds=60,
    ),
    Case(
        "database flushed",
        15,
        "FLUSHDB with jobs in it",
        _SLOW,
        6,
        wrong=flush,
        enqueue=True,
        brokers=("redis",),
        seconds=60,
    ),
    Case(
        "queue deleted",
        15,
        "the queue is deleted under the worker's hands",
        _SLOW,
        6,
        wrong=delete,
        enqueue=True,
        brokers=("rabbitmq",),
        seconds=60,
    ),
]
