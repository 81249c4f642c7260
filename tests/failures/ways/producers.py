"""Way 12: what goes wrong while a job is sent."""

from tests.failures.case import Case, Send
from tests.failures.place import Place


def answer_lost(place: Place) -> None:
    """The producer's publish arrives, its answer does not: the producer sends it again, under the same id."""
    place.sender.send_task("credit", task_id=place.sent[0])


CASES = [
    Case(
        "publish answer lost",
        12,
        "the message arrives, its confirm does not: the producer sends it again",
        [Send(count=1)],
        wrong=answer_lost,
    ),
    Case(
        "queue that nobody has declared",
        12,
        "a misspelt queue; on the harness through enqueue: it stays in the inbox and says why",
        [Send(options={"queue": "misspelt"})],
        0,
        waiting=1,
        enqueue=True,
        brokers=("rabbitmq",),
        settings={"task_create_missing_queues": True},
    ),
    Case("rolled back", 12, "the producer's transaction is rolled back: no job at all", [], 0, jobs=0),
]
