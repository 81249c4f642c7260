"""Is what stands in the database what the laws say? And the promises that hold without any model."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.machine.world import UNIT, Key, Letter, World, digest_of

#: Seconds that an example may take before its clock is doubted.
SLACK = UNIT / 5
CONTENTS = {digest_of(content).hex(): content for content in range(3)}
View = list[list[Any]]


class Known:
    """What the model cannot foresee: the numbers that the database has drawn."""

    def __init__(self) -> None:
        self.letters: list[int] = []
        self.newest = 0

    def differs(self, world: World, view: View) -> list[str]:
        """How the world and the view differ; empty when they do not."""
        fences, rows, letters, audit, effects = view
        wrong: list[str] = []
        _same(wrong, "effects", Counter(map(tuple, effects)), +world.effects)
        found = {Key(job_id, consumer): (*rest, CONTENTS.get(said)) for job_id, consumer, *rest, said in fences}
        wanted = {key: (fence.state, world.now - fence.at, fence.content) for key, fence in world.fences.items()}
        _same(wrong, "fences", found, wanted)
        ids = self.ids([letter[0] for letter in letters])
        _same(wrong, "rows", self._found_rows(rows, ids), self._wanted_rows(world, rows))
        expected = [letter for letter in world.letters if not letter.gone]
        _same(wrong, "letters", [_letter(*letter[1:]) for letter in letters], [_wanted(world, x) for x in expected])
        told = {ids.index(letter): [a for i, a in audit if i == letter] for letter in dict(audit) if letter in ids}
        _same(wrong, "audit", told, {n: letter.audit for n, letter in enumerate(world.letters)})
        return wrong

    def ids(self, found: list[int]) -> list[int]:
        """The letters' numbers in the database, by their place in the model."""
        return [*self.letters, *sorted(set(found) - set(self.letters))]

    def _wanted_rows(self, world: World, rows: list[Any]) -> dict[Key, Any]:
        drawn = {Key(row[0], row[1]): row[4] for row in rows}
        wanted = {}
        for key, row in world.rows.items():
            generation = row.generation
            if generation < 0:
                generation = drawn[key] if drawn.get(key, 0) > self.newest else generation
            wanted[key] = (
                row.available - world.now,
                world.now - row.created,
                generation,
                row.attempts,
                row.deliveries,
                row.dispatches,
                row.failures,
                row.letter,
                None if row.leased is None else row.leased - world.now,
                row.content,
            )
        return wanted

    def _found_rows(self, rows: list[Any], ids: list[int]) -> dict[Key, Any]:
        return {
            Key(row[0], row[1]): (*row[2:9], None if row[9] is None else ids.index(row[9]), *row[10:]) for row in rows
        }

    def learn(self, world: World, view: View) -> None:
        """Take over what the database has drawn."""
        _, rows, letters, _, _ = view
        self.letters = self.ids([letter[0] for letter in letters])
        for row in rows:
            world.rows[Key(row[0], row[1])].generation = row[4]
        self.newest = max([self.newest, *(row[4] for row in rows)])


def _letter(job_id: str, consumer: str, reason: str, *rest: Any) -> tuple[Any, ...]:
    attempts, deliveries, failures, status, replays, resolved, lineage, content = rest
    return (Key(job_id, consumer), reason, attempts, deliveries, failures, status, replays, resolved, lineage, content)


def _wanted(world: World, letter: Letter) -> tuple[Any, ...]:
    resolved = None if letter.resolved is None else world.now - letter.resolved
    what = (letter.key, letter.reason, letter.attempts, letter.deliveries, letter.failures)
    return (*what, letter.status, letter.replays, resolved, letter.lineage, letter.content)


def _same(wrong: list[str], what: str, found: Any, wanted: Any) -> None:
    if not _alike(found, wanted):
        wrong.append(f"{what}:\n    found  {found}\n    wanted {wanted}")


def _alike(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(_alike(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, (list, tuple)):
        return len(found) == len(wanted) and all(map(_alike, found, wanted))
    if isinstance(wanted, float):
        return isinstance(found, (int, float)) and abs(found - wanted) <= SLACK
    return bool(found == wanted)


Content = tuple[str, int]


def broken(view: View, known: list[Content], at_broker: set[Content], pruned: set[Key]) -> list[str]:
    """The promises, read from the database alone.

    `known`: the contents that were really sent, each with its job's id; `at_broker`: those of which a message is still
    there; `pruned`: the keys whose fence or letter has had its time.
    """
    fences, rows, letters, _, found = view
    effects = [job_id for job_id, _ in found]
    wrong = [f"{n} effects of {job_id}" for job_id, n in Counter(effects).items() if n > 1]
    has_row = {Key(row[0], row[1]) for row in rows}
    opened = {Key(x[1], x[2]): x[7] for x in letters if x[9] is None}
    for job_id, consumer, state, *_ in fences:
        key = Key(job_id, consumer)
        if state == "done" and job_id not in effects:
            wrong.append(f"{key} is done without its effect")
        if state == "waiting" and key not in has_row:
            wrong.append(f"{key} waits and nobody has it")
        if state == "dead" and key not in pruned and not any(key == Key(x[1], x[2]) for x in letters):
            wrong.append(f"{key} is dead without a letter")
    states = {Key(f[0], f[1]): f[2] for f in fences}
    for key, status in opened.items():
        if status == "replayed" and key not in has_row:
            wrong.append(f"the letter of {key} says replayed, and nobody has the job")
        if status == "pending_review" and states.get(key) != "dead":
            wrong.append(f"the letter of {key} is pending beside a fence {states.get(key)}")
    evidence = {*map(tuple, found), *at_broker, *((x[0], x[-1]) for x in rows), *((x[1], x[-1]) for x in letters)}
    forgotten = {key.job_id for key in pruned}
    for job_id, content in known:
        # As the job, or under the id of its own that another content has.
        ids = (job_id, Key(job_id, "").filed(content).job_id)
        if not any((one, content) in evidence or one in forgotten for one in ids):
            wrong.append(f"content {content} of {job_id} is lost")
    return wrong
