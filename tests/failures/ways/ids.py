"""Way 11: the ids of jobs."""

from tests.failures.case import Case, Send
from tests.failures.place import Place
from tests.worker.wires import Raw, body


def other_payload(place: Place) -> None:
    """The same id once more, with other arguments, when the first is done."""
    from tests.worker.running import until

    until(lambda: place.state.effects(place.sent[0]) or not place.harness, 20, "the first is done")
    place.sender.send_task("credit", kwargs={"points": 2}, task_id=place.sent[0])


def pruned(place: Place) -> None:
    """The fence of a job has expired and is pruned; then a copy of old comes, by its sending time."""
    from harness.core.events import Events
    from harness.prune import prune
    from harness.store.database import Database
    from harness.store.store import Store
    from tests.worker.running import until

    job_id = place.sent[0]
    until(lambda: place.state.effects(job_id), 20, "the first is done")
    place.state.sql("UPDATE core.processed_jobs SET processed_at = now() - interval '8 days'")
    if place.harness:
        database = Database(place.database)
        prune(
            database,
            Store.of("core"),
            "failures",
            processed_ttl=7 * 86_400.0,
            letters_ttl=90 * 86_400.0,
            events=Events(),
        )
        database.dispose()
        assert place.state.fence(job_id) is None
    late = Raw(body(), {"harness_sent_at": "2020-01-01T00:00:00.000+00:00"})
    place.send_raw(Send(), late, job_id)


_TIMED = [
    Send(),
    Send("once", {"note": "{file}"}),
    Send(options={"expires": 3600}),
    Send(options={"countdown": 1}),
    # As a header alone: on RabbitMQ a client of plain Celery has the broker drop what has expired.
    Send(raw=Raw(body(), {"expires": "2020-01-01T00:00:00+00:00"})),
]

CASES = [
    Case(
        "worker's clock is ahead",
        11,
        "by 20 days: nothing has expired, nothing is too old, an eta has not come",
        _TIMED,
        4,
        {"expired": 1},
        environment={"FAILURES_CLOCK": str(20 * 86_400)},
    ),
    Case(
        "worker's clock is behind",
        11,
        "by 20 days: what has expired has expired, an eta comes",
        _TIMED,
        4,
        {"expired": 1},
        environment={"FAILURES_CLOCK": str(-20 * 86_400)},
    ),
    Case(
        "id of 10,000 characters", 11, "twice the same id", [Send(raw=Raw(body()), ids="{id}" + "x" * 10_000, copies=2)]
    ),
    Case(
        "id with NUL and control characters",
        11,
        "twice the same id",
        [Send(raw=Raw(body()), ids="{id}\0\n\x1b[2J", copies=2)],
    ),
    Case(
        "id that is a path or SQL",
        11,
        "twice the same id",
        [Send(raw=Raw(body()), ids="{id}/../' OR 1=1; --", copies=2)],
    ),
    Case(
        "id of half a character", 11, "a lone surrogate in the id", [Send(raw=Raw(body()), ids="{id}\\ud800", copies=2)]
    ),
    Case(
        "same id, two tasks",
        11,
        "two jobs of different tasks",
        [Send("credit", ids="order-1"), Send("other", ids="order-1")],
        2,
    ),
    Case(
        "same id, other payload",
        11,
        "the id comes again with other arguments: the first one counts, the other is a letter of its own",
        [Send()],
        1,
        {"conflict": 1},
        jobs=1,
        wrong=other_payload,
    ),
    Case("message sent five times", 11, "five copies of one message", [Send(copies=5, count=3)], 3),
    Case(
        "copy after the fence has expired",
        11,
        "a copy of 2020 comes when the job's fence is pruned",
        [Send()],
        1,
        {"too_old": 1},
        jobs=1,
        wrong=pruned,
        settings={"worker_hijack_root_logger": True},
    ),
]
