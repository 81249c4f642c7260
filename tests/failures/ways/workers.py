"""Way 2: the whole worker dies."""

from tests.failures.case import Case, Send
from tests.failures.place import Place
from tests.worker.proxy import Proxy


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


def behind_a_proxy(place: Place) -> None:
    proxy = place.extra["proxy"] = Proxy(place.url)
    place.worker = place.make_worker(place.case, broker=proxy.url)
    place.worker.start()
    place.extra["handed"] = proxy.swallow("credit")


def kill_as_it_is_handed_over(place: Place) -> None:
    assert place.worker is not None
    assert place.extra["handed"].wait(30), "the broker hands it over"
    place.worker.kill()
    place.extra["proxy"].close()
    place.start_worker(place.case)


CASES = [
    Case(
        "worker killed once",
        2,
        "SIGKILL to the whole worker in the middle of the work",
        [Send("credit", {"pause": 1.5})],
        wrong=kill_in_the_middle,
    ),
    Case(
        "worker killed as the broker hands it a message",
        2,
        "SIGKILL to the whole worker while the message is on its way from the broker",
        before=behind_a_proxy,
        wrong=kill_as_it_is_handed_over,
        starts=True,
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
