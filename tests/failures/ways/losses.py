"""Way 15: what the broker itself loses. On the harness the jobs are enqueued: the inbox has them until they end."""

from tests.failures.case import Act, Case, Send
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


def policy(**definition: object) -> Act:
    """What an operator sets for all queues, behind the worker's back."""

    def put(place: Place) -> None:
        data = {"pattern": ".*", "definition": {key.replace("_", "-"): value for key, value in definition.items()}}
        place.api("PUT", f"policies/{place.vhost}/losing", data | {"apply-to": "queues"})

    return put


def no_policy(place: Place) -> None:
    place.api("DELETE", f"policies/{place.vhost}/losing")


def keep_nothing(place: Place) -> None:
    client = Wires(place.url).channel.client
    client.config_set("appendonly", "no")
    client.config_set("save", "")


def crash(place: Place) -> None:
    assert place.server is not None
    place.at_work()
    place.wait(0.5)
    place.server.kill()
    place.main(place.server.start)


_SLOW = [Send("credit", {"pause": 1.5}, 6)]

CASES = [
    Case(
        "messages with a time to live",
        15,
        "a policy lets messages expire after 200 ms, with jobs in the queue",
        _SLOW,
        6,
        before=policy(message_ttl=200),
        after=no_policy,
        enqueue=True,
        brokers=("rabbitmq",),
        seconds=90,
    ),
    Case(
        "queue with a length limit",
        15,
        "a policy lets the queue drop all but one message",
        _SLOW,
        6,
        before=policy(max_length=1),
        after=no_policy,
        enqueue=True,
        brokers=("rabbitmq",),
        seconds=90,
    ),
    Case(
        "crash without persistence",
        15,
        "SIGKILL to a server that writes nothing to its disk",
        _SLOW,
        6,
        before=keep_nothing,
        wrong=crash,
        enqueue=True,
        own=frozenset({"broker"}),
        brokers=("redis",),
        seconds=90,
    ),
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
