"""Reads a RabbitMQ server: its version over AMQP, its queues with their policies over the management API."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from kombu import Connection

from harness.worker.check.queues import QueueFacts

#: The management API's, without and with TLS.
API_PORT, API_TLS_PORT = 15672, 15671
TIMEOUT = 3.0


@dataclass(frozen=True, slots=True)
class RabbitMQ:
    """`queues`: those that the server has and that could be read. `api_problem`: why the others could not."""

    version: tuple[int, ...]
    queues: Mapping[str, QueueFacts]
    missing: tuple[str, ...] = ()
    api_problem: str = ""

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version)) or "unknown"


def read(connection: Connection, queues: list[QueueFacts], api: str | None) -> RabbitMQ:
    """Look at the server behind a connected `connection`.

    `api`: the management API's URL, with a user and a password where these are not the broker's. Without it port 15672
    of the broker's host; where the connection has TLS 15671, for the password must not go unencrypted.
    """
    amqp = connection.connection
    version = str(amqp.server_properties.get("version", ""))
    numbers = tuple(int(part) for part in version.split("+")[0].split("-")[0].split(".") if part.isdigit())
    try:
        base, login = _api(connection, api)
    except ValueError as error:
        return RabbitMQ(numbers, {}, (), f"what is named as its management API is no URL ({error})")
    found: dict[str, QueueFacts] = {}
    missing: list[str] = []
    for queue in queues:
        try:
            found[queue.name] = _of_server(queue, _get(base, login, connection.virtual_host or "/", queue.name))
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != 404:
                return RabbitMQ(numbers, found, tuple(missing), f"{base} answers {error.code} {error.reason}")
            missing.append(queue.name)
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            return RabbitMQ(numbers, found, tuple(missing), f"no management API at {base} ({reason})")
    return RabbitMQ(numbers, found, tuple(missing))


def _api(connection: Connection, url: str | None) -> tuple[str, str]:
    """The API's URL, without its login; the login."""
    login = f"{connection.userid or 'guest'}:{connection.password or 'guest'}"
    if not url:
        scheme, port = ("https", API_TLS_PORT) if connection.ssl else ("http", API_PORT)
        return f"{scheme}://{connection.hostname or 'localhost'}:{port}", login
    parts = urlsplit(url)
    given, at, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=host).geturl().rstrip("/"), unquote(given) if at else login


def _get(base: str, login: str, vhost: str, queue: str) -> dict[str, Any]:
    secret = base64.b64encode(login.encode()).decode()
    request = urllib.request.Request(
        f"{base}/api/queues/{quote(vhost, safe='')}/{quote(queue, safe='')}",
        headers={"Authorization": f"Basic {secret}"},
    )
    # A broker's neighbour, not a site behind a proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=TIMEOUT) as response:
        answer = json.loads(response.read())
    if not isinstance(answer, dict):
        raise ValueError("not a management API's answer")
    return answer


def _of_server(queue: QueueFacts, seen: Mapping[str, Any]) -> QueueFacts:
    arguments: dict[str, Any] = dict(seen.get("arguments") or {})
    if seen.get("type"):
        arguments["x-queue-type"] = seen["type"]
    policy = seen.get("effective_policy_definition")
    for name, value in (dict(policy) if policy else {}).items():
        key = f"x-{name}"
        both = key in arguments and isinstance(value, int) and isinstance(arguments[key], int)
        # Of two limits the lower one counts; of two texts that of the declaration.
        arguments[key] = min(value, arguments[key]) if both else arguments.get(key, value)
    return replace(
        queue,
        arguments=arguments,
        durable=bool(seen.get("durable", True)),
        exclusive=bool(seen.get("exclusive", False)),
        auto_delete=bool(seen.get("auto_delete", False)),
        of_server=True,
        policy=" + ".join(p for p in (seen.get("policy"), seen.get("operator_policy")) if p),
    )
