"""Goes through pairs of point and fault, several lanes side by side."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from uuid import uuid4

from harness.testing import Fault
from harness.testing.failpoints import arm
from tests.services import Servers
from tests.sweep.checks import Watch
from tests.sweep.lane import Lane, Violated
from tests.sweep.left import Broker
from tests.sweep.plan import COMMANDS, Pair, way_to

#: Seconds until a point must have been met, a job ended, and the broker's last message acknowledged.
MEETS, ENDS, ACKED = 60.0, 90.0, 45.0


@dataclass
class Run:
    """One pair on one broker. `problem` is empty where all promises held."""

    broker: str
    pair: Pair
    seconds: float = 0.0
    problem: str = ""
    jobs: tuple[str, ...] = ()
    log: Path | None = None

    @property
    def again(self) -> str:
        """How to repeat it."""
        return f"python -m tests.sweep --broker {self.broker} --only {self.pair}"


@dataclass
class Sweep:
    """What a sweep has found. `unfinished`: troubles that belong to no run."""

    runs: list[Run] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    looks: int = 0

    @property
    def violated(self) -> int:
        return sum(bool(run.problem) for run in self.runs) + len(self.unfinished)


def sweep(
    servers: Servers,
    work: Iterable[tuple[str, Pair]],
    *,
    lanes: int,
    folder: Path,
    tell: Callable[[Run], None] = lambda run: None,
) -> Sweep:
    """Run every (broker, pair) of `work` with `lanes` workers for each broker. From the main thread, for servers."""
    made = Sweep()
    database = servers.databases().make()
    queues: dict[str, SimpleQueue[Pair]] = {}
    for kind, pair in work:
        queues.setdefault(kind, SimpleQueue()).put(pair)
    watch = Watch(database)
    all_lanes = [
        (
            kind,
            Lane(
                f"{kind}{number}",
                Broker.on_shared(servers, kind),
                servers.redis_url(),
                database,
                folder / f"{kind}{number}",
            ),
        )
        for kind, queue in queues.items()
        for number in range(min(lanes, queue.qsize()))
    ]
    with watch.running():
        threads = [Thread(target=_drive, args=(made, lane, kind, queues[kind], tell)) for kind, lane in all_lanes]
        with _ended(lane for _, lane in all_lanes):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    made.looks = watch.looks
    _blame(made, watch.broken)
    servers.databases().drop(database)
    return made


@contextlib.contextmanager
def _ended(lanes: Iterable[Lane]) -> Iterator[None]:
    try:
        yield
    finally:
        for lane in lanes:
            lane.close()


def _drive(made: Sweep, lane: Lane, kind: str, pairs: SimpleQueue[Pair], tell: Callable[[Run], None]) -> None:
    try:
        lane.start()
        while True:
            try:
                pair = pairs.get_nowait()
            except Empty:
                break
            run = Run(kind, pair)
            made.runs.append(run)
            _run(lane, run)
            tell(run)
        lane.stop()
    except BaseException as error:
        made.unfinished.append(f"{lane.name}: {type(error).__name__}: {error}")


def _run(lane: Lane, run: Run) -> None:
    offset = lane.log.stat().st_size
    began = time.monotonic()
    try:
        _once(lane, run)
    except Exception as error:
        where = "" if isinstance(error, Violated) else "\n" + traceback.format_exc(limit=-3)
        run.problem = f"{type(error).__name__}: {error}{where}"
        run.log = lane.folder / f"{run.pair.point}.{run.pair.fault}.log"
        with lane.log.open("rb") as log:
            log.seek(offset)
            run.log.write_bytes(log.read())
        for file in lane.points.glob("*.armed"):
            file.unlink()
    run.seconds = time.monotonic() - began


def _once(lane: Lane, run: Run) -> None:
    pair, job = run.pair, uuid4().hex
    way = way_to(pair)
    if pair.fault in (Fault.lose_database, Fault.lose_broker):
        lane.warm()
    before = [arm(lane.points, point, fault, job) for point, fault in way.setup]
    armed = arm(lane.points, pair.point, pair.fault, None if pair.point in COMMANDS else job)
    ends = way.drive(lane, job)
    run.jobs = tuple(ends)
    for one in (*before, armed):
        lane.until(lambda one=one: one.fired, MEETS, f"the job comes to {one.point}, where {one.fault} happens")
    for one_job, end in ends.items():
        lane.until(lambda j=one_job, e=end: lane.ended(j, e), ENDS, f"job {one_job} is {end}: {_seen(lane, one_job)}")
    lane.until(lane.quiet, ACKED, f"the last message is acknowledged; left: {lane.left()}")
    for one_job, end in ends.items():
        lane.check(one_job, end)
    if pair.fault in (Fault.lose_database, Fault.lose_broker) and not armed.broken:
        raise Violated("the fault met no open connection, so this run proves nothing")


def _seen(lane: Lane, job: str) -> str:
    state = lane.state
    return f"fence {state.fence(job)}, effects {state.effects(job)}, inbox row {state.inbox(job) is not None}"


def _blame(made: Sweep, broken: dict[str, str]) -> None:
    """What the watch has seen belongs to the run whose job it was."""
    by_job = {job: run for run in made.runs for job in run.jobs}
    for job, said in broken.items():
        if (run := by_job.get(job)) is not None:
            run.problem = f"{run.problem}\nseen meanwhile: {said}".strip()
        else:
            made.unfinished.append(f"seen meanwhile: {said}")
