"""One job of the inbox, whole: for people, and as JSON."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from rich.console import Console

from harness.cli.text import line, many, moment, plain, span
from harness.core.message_view import view_of
from harness.core.view import jsonable
from harness.store.inbox import InboxRow


def as_json(row: InboxRow, seen: dict[str, Any]) -> dict[str, Any]:
    """What the list says of it, every failure, and what its message carries."""
    return seen | {
        "generation": row.generation,
        "sequence": row.sequence,
        "priority": row.priority,
        "correlation_id": row.correlation_id,
        "failures": row.failures,
        "arguments": view_of(row.message),
        "message": {
            "queue": row.message.queue,
            "content_type": row.message.content_type,
            "content_encoding": row.message.content_encoding,
            "headers": jsonable(row.message.headers),
            "properties": jsonable(row.message.properties),
            "bytes": len(row.message.body),
            "sha256": hashlib.sha256(row.message.body).hexdigest(),
        },
    }


def write(out: Console, row: InboxRow, seen: dict[str, Any], due: str) -> None:
    """The same for people. `due`: when it is sent, in the words of the list."""

    def say(text: str = "") -> None:
        out.print(plain(text), soft_wrap=True)

    say(f"job {row.job_id}: {row.task}")
    for name, value in _facts(row, seen, due):
        if value not in (None, "", False):
            say(f"  {name:<14} {value}")
    say()
    say("arguments")
    say(_indented(json.dumps(view_of(row.message), indent=2, ensure_ascii=False)))
    say()
    say(many(len(row.failures), "failure"))
    for failure in row.failures:
        who = f"  worker {failure['worker']}" if failure.get("worker") else ""
        often = f"  {failure['times']} times since {failure['first_at']}" if failure.get("times") else ""
        say(f"  {failure.get('at', '')}  try {failure.get('attempt', '?')}  {failure.get('kind', '')}{often}{who}")
        said = f"{failure.get('error_type', '')}: {failure.get('message', '')}"
        say(_indented(failure.get("traceback") or said))
    say()
    message = row.message
    say(f"message ({message.content_type}, {message.content_encoding}) for the queue {message.queue}")
    say("  headers")
    say(_indented(json.dumps(jsonable(message.headers), indent=2, ensure_ascii=False)))
    say(f"  body: {many(len(message.body), 'byte')}, sha256 {hashlib.sha256(message.body).hexdigest()}")


def _facts(row: InboxRow, seen: dict[str, Any], due: str) -> list[tuple[str, Any]]:
    return [
        ("due", f"{due} ({moment(row.available_at)})"),
        ("waits", seen.get("waits_for")),
        ("problem", None if seen.get("waits_for") else seen["relay_error"] and line(seen["relay_error"], 300)),
        ("tries", f"{row.attempts} failed ({many(row.deliveries, 'delivery')} since the last outcome)"),
        ("sent", row.dispatches and f"{many(row.dispatches, 'time')} since the last outcome"),
        ("queue", row.message.queue),
        ("consumer", row.consumer),
        ("correlation id", row.correlation_id),
        ("tenant", row.tenant),
        ("ordering key", row.ordering_key and f"{row.ordering_key} (sequence {row.sequence})"),
        ("priority", row.priority or None),
        ("replay of", row.letter_id and f"letter {row.letter_id}: dead-letters show {row.letter_id}"),
        ("put in", f"{moment(row.created_at)}, {span(seen['age'])} ago"),
    ]


def _indented(text: str) -> str:
    return "\n".join(f"    {part}" for part in text.rstrip("\n").split("\n"))
