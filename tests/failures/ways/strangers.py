"""Way 16: messages that claim what is not theirs."""

import zlib

from tests.failures.case import Case, Send
from tests.worker.wires import Raw, body

_GZIP = {"compression": "application/x-gzip"}


def bomb(megabytes: int) -> bytes:
    """So many megabytes of a JSON text in a thousandth of that, made without ever having it all."""
    packer = zlib.compressobj(9)
    parts = [packer.compress(b'[[], {"x": "'), *(packer.compress(b"y" * (1 << 20)) for _ in range(megabytes))]
    return b"".join([*parts, packer.compress(b'"}, {}]'), packer.flush()])


def claims(
    name: str, said: str, headers: dict[str, object], effects: int = 1, letters: dict[str, int] | None = None
) -> Case:
    return Case(name, 16, said, [Send(raw=Raw(body(), headers))], effects, letters or {})


CASES = [
    claims(
        "forged relay headers",
        "claims to be the relay's copy of a row that is not there",
        {"harness_generation": "7", "harness_dispatch": "3", "harness_consumer": "failures/credit"},
    ),
    claims(
        "forged attempt number",
        "claims to be the 99th try",
        {"retries": 99, "harness_generation": "0", "harness_dispatch": "99"},
    ),
    claims(
        "forged consumer",
        "claims to be a job of another service",
        {"harness_generation": "7", "harness_consumer": "billing/charge"},
    ),
    claims("forged tenant", "claims another tenant, in a mebibyte of text", {"harness_tenant": "x" * 100_000}),
    claims("forged replay", "claims to be an operator's replay", {"harness_replay": "1", "harness_generation": "1"}),
    claims(
        "forged ignored expiry",
        "asks that its expiry be ignored",
        {"harness_ignores": "expires eta", "expires": "2020-01-01T00:00:00+00:00"},
        0,
        {"expired": 1},
    ),
    Case(
        "task that is no job",
        16,
        "names a task of Celery's own",
        [Send("celery.backend_cleanup"), Send("no_job")],
        0,
        jobs=0,
    ),
    Case(
        "50 MB",
        16,
        "a text of 50 MB",
        [Send("echo", raw=Raw(body((), {"x": "y" * 50_000_000})))],
        seconds=90,
        # A busy machine may take longer than the four seconds of the other cases to read it.
        environment={"FAILURES_VISIBILITY": "60"},
    ),
    Case(
        "compressed bomb",
        16,
        "1 GB in 1 MB",
        [Send("echo", raw=Raw(bomb(1024), _GZIP)), Send()],
        1,
        {"undecodable": 1},
        seconds=90,
        settings={"worker_redirect_stdouts": False},
    ),
]
