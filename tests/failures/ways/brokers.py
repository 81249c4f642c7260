"""Way 7: the connection to the broker, or the broker, goes away in the middle."""

from urllib.parse import quote

from redis import Redis

from tests.failures.case import Case, Send
from tests.failures.place import Place
from tests.worker.running import until

_OWN = frozenset({"broker"})
_SLOW = [Send("credit", {"pause": 3.0}), Send("credit", {"pause": 0.1}, 2)]


def close_connections(place: Place) -> None:
    """The broker closes every connection of this place."""
    place.at_work()
    if place.amqp:
        names: list[str] = []

        def listed() -> list[str]:
            found = place.api("GET", f"vhosts/{place.vhost}/connections")
            names[:] = [one["name"] for one in found]
            return names

        until(listed, 20, "the connections are listed")
        for name in names:
            place.api("DELETE", f"connections/{quote(name, safe='')}")
    else:
        client = Redis.from_url(place.url)
        database = place.url.rpartition("/")[2]
        for one in client.client_list():
            if one["db"] == database:
                client.client_kill_filter(_id=one["id"])
        client.close()


def restart(place: Place) -> None:
    assert place.server is not None
    place.at_work()
    place.main(place.server.restart)


def crash(place: Place) -> None:
    assert place.server is not None
    place.at_work()
    place.wait(1.2)  # what the append-only file reaches the disk in
    place.server.kill()
    place.main(place.server.start)


def replica(place: Place) -> None:
    """The server is a replica for a while, which refuses every write: a fail-over in progress."""
    place.at_work()
    with Redis.from_url(place.url) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        place.wait(6)
        client.execute_command("REPLICAOF", "NO", "ONE")


def full(place: Place) -> None:
    """The server's memory is full for a while: it refuses every write that takes more."""
    place.at_work()
    with Redis.from_url(place.url) as client:
        client.config_set("maxmemory", "1")
        place.wait(4)
        client.config_set("maxmemory", "0")


def loading(place: Place) -> None:
    """No password is right any more for a while, as when secrets are rotated."""
    place.at_work()
    with Redis.from_url(place.url) as client:
        password = client.connection_pool.connection_kwargs["password"]
        client.config_set("requirepass", "another")
        for one in client.client_list():
            if one["id"] != str(client.client_id()):
                client.client_kill_filter(_id=one["id"])
        place.wait(4)
        client.config_set("requirepass", password)


CASES = [
    Case(
        "connection lost in the work",
        7,
        "the broker closes every connection in the middle of the work",
        _SLOW,
        3,
        wrong=close_connections,
        seconds=60,
    ),
    Case(
        "consumer time-out",
        7,
        "RabbitMQ closes the channel of a job that takes 8 s after 2 s",
        [Send("credit", {"pause": 8.0})],
        1,
        brokers=("rabbitmq",),
        own=frozenset({"broker", "consumer_timeout"}),
        seconds=80,
    ),
    Case(
        "visibility time-out",
        7,
        "the job takes 7 s, the visibility time-out is 2 s",
        [Send("credit", {"pause": 7.0})],
        1,
        brokers=("redis",),
        settings={
            "broker_transport_options": {
                "visibility_timeout": 2,
                "unacked_restore_interval": 1,
                "unacked_restore_throttle": 1,
            }
        },
        seconds=60,
    ),
    Case(
        "broker restarted",
        7,
        "restart in good order in the middle of the work",
        _SLOW,
        3,
        wrong=restart,
        own=_OWN,
        seconds=90,
    ),
    Case("broker crashed", 7, "SIGKILL in the middle of the work", _SLOW, 3, wrong=crash, own=_OWN, seconds=90),
    Case(
        "first URL is dead",
        7,
        "a list of two URLs, the first of which nobody listens at",
        [Send(count=3), Send("once", {"note": "{file}"})],
        4,
        settings={"broker_url": ["{dead}", "{broker}"], "broker_connection_timeout": 1},
        seconds=60,
    ),
    Case(
        "first URL is dead, as one text",
        7,
        "the same in one text, with semicolons",
        [Send(count=3), Send("once", {"note": "{file}"})],
        4,
        settings={"broker_url": "{dead};{broker}", "broker_connection_timeout": 1},
        seconds=60,
    ),
    Case(
        "broker is a replica for a while",
        7,
        "every write is refused for 6 s: READONLY",
        _SLOW,
        3,
        wrong=replica,
        own=_OWN,
        brokers=("redis",),
        seconds=60,
    ),
    Case(
        "broker's memory is full",
        7,
        "writes are refused for 4 s: OOM",
        _SLOW,
        3,
        wrong=full,
        own=_OWN,
        brokers=("redis",),
        seconds=60,
    ),
    Case(
        "broker refuses the password", 7, "for 4 s", _SLOW, 3, wrong=loading, own=_OWN, brokers=("redis",), seconds=60
    ),
]
