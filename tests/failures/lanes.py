"""All cases on all brokers and both sides, several at a time, each lane with a place of its own."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from tests.failures.case import SIDES, Case
from tests.failures.count import Counter, Row
from tests.failures.place import Place
from tests.services import Servers

#: Cases that share a worker, at most.
SHARING = 8


@dataclass(frozen=True)
class Lane:
    """Cases that run one after the other in one place."""

    side: str
    broker: str
    cases: tuple[Case, ...]


def lanes(
    cases: Sequence[Case],
    brokers: Iterable[str],
    sides: Iterable[str] = SIDES,
    has: Callable[[Case, str, str], bool] = lambda case, side, broker: False,
) -> list[Lane]:
    """The longest first: those with servers of their own. Without what somebody `has` already: case, side, broker."""
    made = []
    for broker in brokers:
        for side in sides:
            mine = [case for case in cases if broker in case.brokers and not has(case, side, broker)]
            sharing = [case for case in mine if case.shares]
            made += [Lane(side, broker, (case,)) for case in mine if not case.shares]
            made += [Lane(side, broker, tuple(sharing[n : n + SHARING])) for n in range(0, len(sharing), SHARING)]
    return sorted(made, key=lambda lane: (-sum(len(case.own) for case in lane.cases), -len(lane.cases)))


class MainThread:
    """Does what only the main thread may: start a server, which ends with the thread that started it."""

    def __init__(self) -> None:
        self._todo: Queue[tuple[Callable[[], Any], Future[Any]]] = Queue()

    def do(self, what: Callable[[], Any]) -> Any:
        """Have it done there, and wait for it; from any other thread."""
        future: Future[Any] = Future()
        self._todo.put((what, future))
        return future.result(180)

    def serve(self, until: Callable[[], bool]) -> None:
        """In the main thread: do what comes until `until` is true."""
        while not until():
            try:
                what, future = self._todo.get(timeout=0.2)
            except Empty:
                continue
            try:
                future.set_result(what())
            except BaseException as error:
                future.set_exception(error)


def run(
    todo: Sequence[Lane], servers: Servers, folder: Path, side_by_side: int, told: Callable[[Row], None]
) -> list[Row]:
    """Run every lane; `told` hears of each row."""
    main = MainThread()

    def drive(number: int, lane: Lane) -> list[Row]:
        return list(_run(lane, servers, folder / f"lane{number}", main, told))

    threads = ThreadPoolExecutor(side_by_side)
    try:
        running = [threads.submit(drive, number, lane) for number, lane in enumerate(todo)]
        main.serve(lambda: not wait(running, timeout=0).not_done)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)  # an interrupt does not wait for what has not begun
    return [row for lane in running for row in lane.result()]


def _run(lane: Lane, servers: Servers, folder: Path, main: MainThread, told: Callable[[Row], None]) -> Iterator[Row]:
    place: Place | None = None
    for case in lane.cases:
        try:
            if place is None:
                place = Place(servers, lane.side, lane.broker, folder, case.own, main.do)
            row = run_case(place, case)
        except Exception as error:
            traceback.print_exc()
            row = Row(case, lane.side, lane.broker, sent=case.sent, fault=f"not run: {error!r}"[:300])
            if place is not None:
                place.stop_worker(kill=True)
                place.purge()
        told(row)
        yield row
    if place is not None:
        with contextlib.suppress(Exception):
            place.close()


def run_case(place: Place, case: Case) -> Row:
    """One case in one place: send, let it go wrong, wait for the end, count."""
    place.sent, place.extra, place.case = [], {}, case
    counter = Counter(place, case)
    fault = ""
    if not case.starts:
        place.start_worker(case)
    try:
        if case.before is not None:
            case.before(place)
        for one in case.send:
            place.send(one, case.enqueue)
        try:
            if case.wrong is not None:
                case.wrong(place)
            ended_well = counter.harness_ends() if place.harness else counter.plain_ends()
        except AssertionError as error:
            fault, ended_well = (str(error)[:200] if place.harness else ""), False
    finally:
        if case.after is not None:
            with contextlib.suppress(Exception):
                case.after(place)
    worker_ended = place.worker is not None and not place.worker.alive
    clean = case.shares and not worker_ended and not fault and (ended_well or _at_rest(place))
    if not clean:
        place.stop_worker(kill=not place.harness)
    left = _left(place)
    if place.harness and left and not case.starts:
        # What came again at the last moment, or was not acknowledged before the end: it is a duplicate now.
        place.start_worker(case)
        counter.harness_ends()
        counter.is_quiet()
        place.stop_worker()
        left = _left(place)
    if place.harness and left and not fault:
        fault = f"{left} messages are left with the broker"
    row = counter.row(left, worker_ended, fault)
    if not clean:
        place.purge()
    if not clean or row.waiting:
        with contextlib.suppress(Exception):
            place.state.sql("DELETE FROM core.inbox")
    return row


def _at_rest(place: Place) -> bool:
    """Has plain Celery lost its jobs, and its worker nothing more in hand? Then the next case can have it."""
    try:
        return not place.harness and place.held() == 0
    except Exception:
        return False


def _left(place: Place) -> int:
    try:
        return place.left()
    except Exception:
        return 0
