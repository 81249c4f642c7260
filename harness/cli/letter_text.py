"""Letters for people: two lines for each of many, everything about one."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console

from harness.cli.letter_json import body_text
from harness.cli.next_step import next_step
from harness.cli.text import entries, line, many, moment, plain, span
from harness.core.ids import idempotency_key
from harness.core.reason import Reason
from harness.core.view import jsonable
from harness.replay import Refused, Result
from harness.store.letter import Letter
from harness.store.processed_jobs import FenceRow

#: What to do before a letter is replayed that may have taken effect.
UNKNOWN = """\
  Its handler was called, and whether the other side has acted is not known. Nothing calls it again without you.
  1. Look there (the provider's console, the outbox, the other database) for this idempotency key:
       {key}
  2. It is there: discard the letter, and write what the handler would have noted.
     It is not there, and nothing is on its way: replay the letter; it calls again, with the same key.
     You can't tell: leave it, or ask the other side. If it honours the key, a replay does no harm."""
#: A body longer than this is shown by its beginning.
LONGEST_BODY = 20_000


def listed(letters: Sequence[Letter], now: datetime, width: int) -> list[str]:
    """Two lines for each letter, below a line of names."""
    rows = [
        (
            (
                str(letter.id),
                span((now - letter.created_at).total_seconds()),
                str(letter.reason),
                str(_tries(letter)),
                letter.task + _note(letter),
            ),
            # The module of the error's type is in `show`: here its message has the room.
            f"{letter.job_id}: {letter.error_type.rpartition('.')[2]}: {letter.error_message}",
        )
        for letter in letters
    ]
    return entries((">id", "age", "reason", ">tries", "task"), rows, width)


def _note(letter: Letter) -> str:
    """What sets a letter apart from a fresh one that waits for a person."""
    notes = []
    if letter.status != "pending_review":
        notes.append("resolved" if letter.status == "replayed" and letter.resolved_at else letter.status)
    elif letter.replays:
        notes.append(f"failed again after {many(letter.replays, 'replay')}")
    if letter.surfaced and not letter.resolved_at:
        notes.append("surfaced")
    return f"  ({', '.join(notes)})" if notes else ""


#: What became of the letters that a command was about, in words.
_DONE = {
    "replayed": "replayed: {job} in the inbox, and the relay sends {it} to the queue now",
    "discarded": "discarded: {job} will not run",
    "resolved": "resolved, nothing sent: {job} succeeded meanwhile",
    "refused": "refused, unchanged",
    "failed": "failed, unchanged",
}


def summary(counts: dict[str, int]) -> list[str]:
    """A line for each kind of result that there was."""
    lines = []
    for kind, count in counts.items():
        if count:
            are = "is" if count == 1 else "are"
            job = "its job" if count == 1 else "their jobs"
            subject = {"replayed": f"{job} {are}", "resolved": f"{job} had"}.get(kind, job)
            words = _DONE[kind].format(job=subject, it="it" if count == 1 else "them")
            lines.append(f"{many(count, 'letter')} {words}")
    return lines


def write(
    out: Console,
    letter: Letter,
    trail: Iterable[dict[str, Any]],
    fence: FenceRow | None,
    waits: bool,
    *,
    tracebacks: bool,
    blocks: bool = False,
) -> None:
    """All that is known of a letter. `blocks`: the other jobs of its ordering key wait for it."""

    def say(text: str = "") -> None:
        out.print(plain(text), soft_wrap=True)

    say(f"letter {letter.id}: {letter.task} {letter.job_id}")
    for name, value in _facts(letter, fence, waits, blocks):
        if value not in (None, "", False):
            say(f"  {name:<14} {value}")
    if letter.reason is Reason.outcome_unknown and letter.resolved_at is None:
        say()
        say(UNKNOWN.format(id=letter.id, key=idempotency_key(letter.consumer, letter.job_id)))
    say()
    say("arguments")
    say(_indented(_pretty(letter.payload)))
    say()
    say(many(len(letter.failures), "failure"))
    for failure in letter.failures:
        who = f"  worker {failure['worker']}" if failure.get("worker") else ""
        often = f"  {failure['times']} times since {failure['first_at']}" if failure.get("times") else ""
        say(f"  {failure.get('at', '')}  try {failure.get('attempt', '?')}  {failure.get('kind', '')}{often}{who}")
        say(_indented(f"{failure['error_type']}: {failure['message']}"))
        if tracebacks and failure.get("traceback"):
            say(_indented(failure["traceback"]))
    if letter.traceback and not tracebacks:
        say("traceback of the last one")
        say(_indented(letter.traceback))
    say()
    message = letter.message
    say(f"message ({message.content_type}, {message.content_encoding}) from the queue {message.queue}")
    say("  headers")
    say(_indented(_pretty(message.headers)))
    say("  properties")
    say(_indented(_pretty(message.properties)))
    say(f"  body: {many(len(message.body), 'byte')}, sha256 {hashlib.sha256(message.body).hexdigest()}")
    text = body_text(message.body)
    shown = repr(message.body[:LONGEST_BODY]) if text is None else text[:LONGEST_BODY]
    say(_indented(shown + ("…  (--json has all of it)" if len(text or message.body) > LONGEST_BODY else "")))
    if letter.lineage:
        say()
        say("lineage")
        for event in letter.lineage:
            more = " ".join(f"{key}={value}" for key, value in event.items() if key not in ("at", "event"))
            say(f"  {event.get('at', '')}  {event.get('event', '')}  {more}")
    say()
    say("audit trail")
    for row in trail:
        why = f": {row['reason']}" if row["reason"] else ""
        say(f"  {moment(row['at'])}  {row['action']} by {row['actor']}{why}")


def _facts(letter: Letter, fence: FenceRow | None, waits: bool, blocks: bool) -> list[tuple[str, Any]]:
    state = "missing" if fence is None else str(fence.state)
    return [
        ("status", letter.status + (" (resolved)" if letter.resolved_at and letter.status == "replayed" else "")),
        ("reason", str(letter.reason)),
        ("error", line(f"{letter.error_type}: {letter.error_message}", 200)),
        ("needs a person", letter.surfaced),
        ("tries", f"{_tries(letter)} ({many(letter.deliveries, 'delivery')} since the last outcome)"),
        ("replays", letter.replays),
        ("fingerprint", letter.fingerprint),
        ("correlation id", letter.correlation_id),
        ("consumer", letter.consumer),
        ("tenant", letter.tenant),
        ("ordering key", letter.ordering_key and letter.ordering_key + _place(letter)),
        ("blocks", blocks and "its key: the others wait until it is replayed with success, or discarded"),
        ("priority", letter.priority or None),
        ("written", moment(letter.created_at)),
        ("updated", moment(letter.updated_at)),
        ("reviewed", letter.reviewer and f"{moment(letter.reviewed_at)} by {letter.reviewer}"),
        ("discarded", letter.discard_reason),
        ("resolved", moment(letter.resolved_at)),
        ("fence", state + (", waits in the inbox" if waits else "")),
        ("next", next_step(letter, fence, waits)),
    ]


def _tries(letter: Letter) -> int:
    """Those that were spent: `NotReady` spends none, though the last call counts as one in the letter's row."""
    return letter.attempts - (letter.reason is Reason.not_ready and letter.attempts > 0)


def _place(letter: Letter) -> str:
    return "" if letter.sequence is None else f" (sequence {letter.sequence})"


def _pretty(value: Any) -> str:
    return json.dumps(jsonable(value), indent=2, ensure_ascii=False)


def _indented(text: str) -> str:
    return "\n".join(f"    {part}" for part in text.rstrip("\n").split("\n"))


def audit_json(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the audit log as JSON."""
    return {**row, "at": row["at"].isoformat()}


def result_json(what: Result | Exception) -> dict[str, str]:
    """What was done to a letter, or why nothing was."""
    if isinstance(what, Result):
        return {"result": str(what)}
    kind = "refused" if isinstance(what, Refused) else "failed"
    return {"result": kind, "error": str(what) if kind == "refused" else f"{type(what).__name__}: {what}"}
