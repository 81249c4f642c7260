"""Way 3: messages that this worker can't run."""

import pickle

from tests.failures.case import Case, Send
from tests.failures.place import QUEUE, Place
from tests.worker.wires import Raw, Wires, body


def garbage(place: Place) -> None:
    """Things in the list of the queue that are no message."""
    wires = Wires(place.url)
    for thing in (b"garbage", b"{}", b"[1, 2]", b"\xff\xfe\x00"):
        wires.channel.client.lpush(QUEUE, thing)
    wires.close()


def malformed(name: str, said: str, raw: Raw, reason: str = "undecodable", *, bare: bool = False) -> Case:
    return Case(name, 3, said, [Send(raw=raw, bare=bare)], 0, {reason: 1})


CASES = [
    Case(
        "unknown task",
        3,
        "this worker does not know it: it waits and is tried again",
        [Send("not.there", count=2)],
        0,
        waiting=2,
    ),
    malformed("body is no JSON", "the body does not decode", Raw(b"<order>17</order>")),
    malformed("body is null", "valid JSON, but no task's", Raw(b"null")),
    malformed("body is empty", "no byte at all", Raw(b"")),
    malformed(
        "content type refused",
        "pickle, which is not accepted",
        Raw(pickle.dumps([[], {}, {}]), content_type="application/x-python-serialize", content_encoding="binary"),
    ),
    malformed(
        "headers of somebody else", "neither task nor id", Raw(b'{"order": 17}', {"x-source": "shop"}), bare=True
    ),
    malformed("task is a list", "the header is of the wrong type", Raw(body(), {"task": ["credit"]})),
    malformed("time limit is a text", "the header is of the wrong type", Raw(body(), {"timelimit": "soon"})),
    malformed("arguments of the wrong type", "kwargs is a list", Raw(b"[[], [1], {}]"), "invalid_payload"),
    malformed(
        "arguments that do not fit",
        "a text where a number belongs",
        Raw(body((), {"points": "many"})),
        "invalid_payload",
    ),
    Case(
        "garbage in Redis' list",
        3,
        "four things in the queue's list that are no messages, then a job",
        [Send()],
        1,
        {"undecodable": 4},
        jobs=5,
        before=garbage,
        brokers=("redis",),
    ),
    Case(
        "protocol 1",
        3,
        "a message of the old protocol",
        [Send(raw=Raw(b'{"task": "credit", "id": "protocol-1", "args": [], "kwargs": {}}'), bare=True)],
    ),
]
