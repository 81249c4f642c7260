"""Way 2: the whole worker dies."""

from tests.failures.case import Case, Send
from tests.failures.place import Place


def kill_in_the_middle(place: Place) -> None:
    place.at_work()
    assert place.worker is not None
    place.worker.kill()
    place.worker.start()


def revive(place: Place) -> None:
    """What keeps workers running in production: starts it again whenever it has died, for 20 s at most."""
    assert place.worker is not None
    for _ in range(200):
        place.wait(0.1)
        if not place.worker.alive:
            place.worker.kill()
            place.worker.start()
        if place.harness and place.state.letters():
            return


CASES = [
    Case(
        "worker killed once",
        2,
        "SIGKILL to the whole worker in the middle of the work",
        [Send("credit", {"pause": 1.5})],
        wrong=kill_in_the_middle,
    ),
    Case(
        "job that kills its worker each time",
        2,
        "SIGKILL to the worker by the job, whenever it runs; the next job waits behind it",
        [Send("dies", {"how": "worker"}), Send("credit")],
        1,
        {"crashed": 1},
        wrong=revive,
        seconds=60,
        settings={"harness_max_deliveries": 3},
    ),
]
