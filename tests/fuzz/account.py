"""What became of each message: the checker computes the key that the product gives it, and looks for the evidence."""

from __future__ import annotations

import base64
import bz2
import hashlib
import json
import lzma
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from kombu.utils.json import loads as kombu_loads

from harness.core.message import job_key
from tests.fuzz.mutate import Item
from tests.worker.running import State


def bodies_of(item: Item) -> set[bytes]:
    """The bytes that its evidence may hold: its body or, for what is no message, all that lay in the list."""
    found = {item.body}
    if item.raw is not None:
        found.add(item.raw)
        envelope = _envelope(item.raw)
        text = envelope.get("body")
        if isinstance(text, str):
            found.add(text.encode("utf-8", "surrogatepass"))
            try:
                found.add(base64.b64decode(text))
            except ValueError:
                pass
        elif not text:
            found.add(b"")
    return found


def keys_of(item: Item) -> set[str]:
    """The ids under which the product may keep it: of its headers, of its protocol 1 body, or the hash of its bytes."""
    headers = item.headers if item.raw is None else _envelope(item.raw).get("headers")
    ids = [headers.get("id")] if isinstance(headers, dict) else []
    for body in bodies_of(item):
        for plain in _unpacked(body):
            head = _json(plain)
            if isinstance(head, dict):
                ids.append(head.get("id"))
    keys = {"sha256:" + hashlib.sha256(body).hexdigest() for body in bodies_of(item)}
    return keys | {job_key(raw, b"") for raw in ids if raw not in (None, "")}


def _envelope(raw: bytes) -> dict[str, Any]:
    try:
        found = kombu_loads(raw)
    except Exception:
        return {}
    return found if isinstance(found, dict) else {}


def _unpacked(body: bytes) -> list[bytes]:
    """The body, and what it is decompressed."""
    found = [body]
    for decompress in (zlib.decompress, bz2.decompress, lzma.decompress):
        try:
            found.append(decompress(body))
        except (ValueError, OSError, EOFError, zlib.error, lzma.LZMAError):
            continue
    return found


def _json(body: bytes) -> Any:
    for encoding in ("utf-8", "utf-16", "latin-1", "utf-7"):
        try:
            return json.loads(body.decode(encoding))
        except (ValueError, RecursionError):
            continue
    return None


class Looked:
    """An item with what it is looked for by: computed once, for a body may be large and packed."""

    def __init__(self, item: Item) -> None:
        self.item = item
        self.hashes = {hashlib.sha256(body).digest() for body in bodies_of(item)}
        self.keys = keys_of(item)


class Books:
    """What stands in the database at one moment, of all jobs or of those with `ids`."""

    def __init__(self, state: State, ids: Iterable[str] | None = None) -> None:
        def rows(query: str) -> list[Any]:
            where = "" if ids is None else " WHERE job_id = ANY(:ids)"
            return state.sql(query.format(where), **({} if ids is None else {"ids": list(ids)}))

        self.effects: Counter[tuple[str, str]] = Counter({(row.job_id, row.task): row.n for row in rows(_EFFECTS)})
        self.fences: dict[str, dict[str, str]] = defaultdict(dict)
        for row in rows("SELECT job_id, consumer, state FROM core.processed_jobs{}"):
            self.fences[row.job_id][row.consumer] = row.state
        self.letters: dict[str, list[bytes]] = defaultdict(list)
        for row in rows("SELECT job_id, sha256(body) AS hash FROM core.dead_letters{}"):
            self.letters[row.job_id].append(bytes(row.hash))
        self.waiting: dict[str, list[bytes]] = defaultdict(list)
        for row in rows("SELECT job_id, sha256(body) AS hash FROM core.inbox{}"):
            self.waiting[row.job_id].append(bytes(row.hash))

    def doubled(self) -> list[str]:
        """Jobs that took effect more than once."""
        return [f"{n} effects of {job_id!r} by {task}" for (job_id, task), n in self.effects.items() if n > 1]

    def unfounded(self) -> list[str]:
        """Fences that say done of a job without effect, and effects without such a fence."""
        has_effect = {job_id for job_id, _ in self.effects}
        done = {job_id for job_id, found in self.fences.items() if "done" in found.values()}
        return [f"{job_id!r}: done without effect" for job_id in done - has_effect] + [
            f"{job_id!r}: effect without a fence" for job_id in has_effect - done
        ]

    def of(self, item: Item | Looked) -> str:
        """done, letter, waiting; other, where its key is known by another message; or empty: unaccounted for."""
        looked = item if isinstance(item, Looked) else Looked(item)
        hashes, keys = looked.hashes, looked.keys
        for key in keys:
            if not hashes.isdisjoint(self.letters.get(key, ())):
                return "letter"
            if not hashes.isdisjoint(self.waiting.get(key, ())):
                return "waiting"
        for key in keys:
            if "done" in self.fences.get(key, {}).values():
                return "done"
        for key in keys:
            if key in self.fences or key in self.letters or key in self.waiting:
                return "other"
        return ""


_EFFECTS = "SELECT job_id, task, count(*) AS n FROM ledger{} GROUP BY job_id, task"


def missing(state: State, items: Iterable[Looked]) -> list[Looked]:
    """Those of which there is no trace."""
    items = list(items)
    books = Books(state, {key for item in items for key in item.keys})
    return [item for item in items if not books.of(item)]
