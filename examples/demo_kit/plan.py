"""What the demo sends, and what must stand in the database in the end: worked out from the input alone."""

import json
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[1] / "github_ledger" / "deliveries.ndjson"
BOOK = "github_ledger.book_activity"
#: No account is open for this repository at first: its deliveries fail for good, until somebody opens one.
LATE = "Octocoders/Hello-World"

#: What the ledger says of a delivery: id, repository, event, action, actor.
Line = tuple[str, str, str, str | None, str]


@dataclass(frozen=True, slots=True)
class Sending:
    """One message. With `body` it is no Celery message at all: these bytes, said to be JSON."""

    job_id: str
    task: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(slots=True)
class Plan:
    """`first`: a message for each job. `duplicates`: at once; `late_duplicates`: when all else is done.

    `ledger`: the lines in the end. `letters`: the reason of each job that stays dead. `replayed`: jobs that are dead
    until their account is open.
    """

    first: list[Sending] = field(default_factory=list)
    duplicates: list[Sending] = field(default_factory=list)
    late_duplicates: list[Sending] = field(default_factory=list)
    ledger: Counter[Line] = field(default_factory=Counter)
    letters: dict[str, str] = field(default_factory=dict)
    replayed: set[str] = field(default_factory=set)
    repositories: set[str] = field(default_factory=set)

    @property
    def deliveries(self) -> int:
        return len(self.first) + len(self.duplicates) + len(self.late_duplicates)

    @property
    def totals(self) -> Counter[str]:
        """How often something has happened in each repository."""
        return Counter(repository for _, repository, _, _, _ in self.ledger.elements())


def make() -> Plan:
    """The plan of a run; the same each time."""
    plan = Plan()
    deliveries = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
    for number, delivery in enumerate(deliveries):
        sending = Sending(delivery["id"], BOOK, {"event": delivery["event"], "payload": delivery["payload"]})
        _expect_booked(plan, sending)
        if delivery["payload"]["repository"]["full_name"] == LATE:
            plan.replayed.add(sending.job_id)
        plan.first.append(sending)
        if number % 4 == 0:
            plan.duplicates += [sending, sending]
        if number % 5 == 0:
            plan.late_duplicates.append(sending)
    usual = [d for d in deliveries if d["payload"]["repository"]["full_name"] != LATE]
    for task, count in (("fails_twice", 3), ("kills_its_process", 1), ("fails_always", 2)):
        for number, delivery in enumerate(usual[:count]):
            sending = Sending(
                _id(f"{task} {number}"),
                f"github_ledger.{task}",
                {"event": delivery["event"], "payload": delivery["payload"]},
            )
            plan.first.append(sending)
            if task == "fails_always":
                plan.letters[sending.job_id] = "exhausted"
                plan.late_duplicates.append(sending)
            else:
                _expect_booked(plan, sending)
    _add_broken(plan, usual[0])
    return plan


def _add_broken(plan: Plan, good: dict[str, Any]) -> None:
    """Real deliveries with something wrong; no retry can mend them."""
    event, payload = good["event"], good["payload"]
    broken: dict[str, dict[str, Any]] = {
        "nothing in it": {"event": event, "payload": {}},
        "no sender": {"event": event, "payload": {**payload, "sender": None}},
        "a number for a name": {"event": event, "payload": {**payload, "repository": {"full_name": 7}}},
        "no event": {"payload": payload},
        "an argument too many": {"event": event, "payload": payload, "signature": "sha256=0"},
    }
    for name, kwargs in broken.items():
        sending = Sending(_id(name), BOOK, kwargs)
        plan.first.append(sending)
        plan.letters[sending.job_id] = "invalid_payload"
    cut = json.dumps([[], good, {}]).encode()[:-100]
    sending = Sending(_id("cut off"), BOOK, body=cut)
    plan.first.append(sending)
    plan.letters[sending.job_id] = "undecodable"


def _expect_booked(plan: Plan, sending: Sending) -> None:
    payload = sending.kwargs["payload"]
    repository = payload["repository"]["full_name"]
    line = (sending.job_id, repository, sending.kwargs["event"], payload.get("action"), payload["sender"]["login"])
    plan.ledger[line] += 1
    plan.repositories.add(repository)


def _id(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"https://example.com/github_ledger/{name}"))
