"""The failures that a job's row remembers: bounded, and what is said a thousand times is said once, with its number."""

from collections.abc import Sequence
from typing import Any

from harness.core.failure import Kind

Entry = dict[str, Any]
#: A job that waits for hours may fail often without spending tries: the newest failures are kept.
KEPT = 100
#: Seconds from the row's beginning to the first `NotReady`: an eta, or a worker's absence, is no part of the deadline.
_AFTER = "not_ready_after"


def add(failures: Sequence[Entry], entry: Entry) -> list[Entry]:
    """The failures with one more. `NotReady` from one place, again and again, is one entry: `times`, `first_at`."""
    last = failures[-1] if failures else {}
    if entry["kind"] == Kind.not_ready == last.get("kind") and _same(entry, last):
        merged = entry | {"times": last.get("times", 1) + 1, "first_at": last.get("first_at", last["at"])}
        return [*failures[:-1], merged][-KEPT:]
    return [*failures, entry][-KEPT:]


def not_ready_after(failures: Sequence[Entry], waited: float) -> float:
    """When the job said `NotReady` for the first time, in seconds from its row's beginning; `waited` is now."""
    known = [entry[_AFTER] for entry in failures if _AFTER in entry]
    return float(known[-1]) if known else waited


def noted(entry: Entry, after: float) -> Entry:
    """The entry of a `NotReady`, which remembers when the first one was."""
    return entry | {_AFTER: after}


def _same(one: Entry, other: Entry) -> bool:
    return all(one.get(name) == other.get(name) for name in ("error_type", "fingerprint", "attempt"))
