"""Way 4: expired and revoked jobs."""

from tests.failures.case import Case, Send
from tests.failures.place import Place


def revoke(place: Place) -> None:
    place.sender.control.revoke(f"revoked-{place.side}", reply=True, timeout=5)


def revoke_stamp(place: Place) -> None:
    place.sender.control.revoke_by_stamped_headers({"batch": ["b1"]}, reply=True, timeout=5)


def terminate(place: Place) -> None:
    place.at_work()
    place.sender.control.terminate(place.sent[0], reply=True, timeout=5)


CASES = [
    Case("expired", 4, "its time is over before it runs", [Send(options={"expires": -5})], 0, {"expired": 1}),
    Case(
        "revoked by its id",
        4,
        "revoke(id) before it is sent",
        [Send(ids="revoked-harness"), Send(ids="revoked-plain")],
        1,
        {"revoked": 1},
        before=revoke,
        settings={"worker_send_task_events": False},
    ),
    Case(
        "revoked by a stamp",
        4,
        "all of a batch is revoked, before it is sent; another batch is not",
        [
            Send(options={"stamped_headers": ["batch"], "batch": "b1"}),
            Send(options={"stamped_headers": ["batch"], "batch": "b2"}),
        ],
        1,
        {"revoked": 1},
        before=revoke_stamp,
        settings={"worker_send_task_events": False},
    ),
    Case(
        "terminated",
        4,
        "revoke(id, terminate=True) while it runs",
        [Send("credit", {"pause": 8})],
        0,
        {"revoked": 1},
        wrong=terminate,
    ),
]
