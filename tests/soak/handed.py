"""What a Redis-protocol server's append-only file says of a message that is gone.

The server hands a message to whoever waits for one, and has no acknowledgement: kombu writes down that it has it in a
second command. Between the two it is in a process alone, or on the way to one, and gone when that dies. Whoever lets go
of a message that was written down has acknowledged it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

UNACKED = b"unacked"


def never_noted(folder: Path, job: str) -> bool:
    """Was the last that was done to this job's message to put it into its list? `folder`: the server's."""
    marks = (f'"id": "{job}"'.encode(), f'"message_id": "{job}"'.encode())
    last, tag = "", b""
    for command in commands(folder):
        name = command[0].upper()
        its = any(mark in part for part in command[2:] for mark in marks)
        if name in (b"LPUSH", b"RPUSH") and its:
            last = "in its list"
        elif name == b"HSET" and command[1] == UNACKED and its:
            last, tag = "noted", command[2]
        elif name == b"HDEL" and command[1] == UNACKED and tag in command[2:] and last == "noted":
            last = "let go"
    return last == "in its list"


def commands(folder: Path) -> Iterator[list[bytes]]:
    """Every write in the order that it was done; what a killed server has left half-written is none."""
    for file in sorted((folder / "appendonlydir").glob("*.incr.aof"), key=lambda path: int(path.name.split(".")[-3])):
        with file.open("rb") as lines:
            while head := lines.readline():
                if not head.startswith(b"*"):
                    continue
                parts = []
                for _ in range(int(head[1:])):
                    size = lines.readline()
                    if not size.startswith(b"$"):
                        break
                    parts.append(lines.read(int(size[1:])))
                    lines.readline()
                if parts:
                    yield parts
