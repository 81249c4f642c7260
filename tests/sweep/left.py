"""What a broker still has, with what was delivered and not acknowledged."""

from __future__ import annotations

import json
import urllib.request
from typing import Any
from urllib.parse import quote, urlsplit

from tests.services import RabbitMQ, Servers, Service, Valkey
from tests.worker.queues import messages


class Broker:
    """A place on a broker: a virtual host, or a database. `api`: that of RabbitMQ's management, with its user."""

    def __init__(self, kind: str, url: str, api: str = "") -> None:
        self.kind, self.url, self.api = kind, url, api

    @classmethod
    def on_shared(cls, servers: Servers, kind: str) -> Broker:
        """A fresh place of its own on the shared server."""
        if kind == "rabbitmq":
            return cls(kind, servers.rabbitmq_url(), servers.rabbitmq_api())
        return cls(kind, servers.redis_url())

    @classmethod
    def of(cls, server: Service) -> Broker:
        """The default place of a server of one's own."""
        if isinstance(server, RabbitMQ):
            return cls("rabbitmq", server.url, f"http://harness:{server.password}@127.0.0.1:{server.http_port}/api/")
        assert isinstance(server, Valkey)
        return cls("redis", server.url)

    def left(self, queue: str) -> int:
        """Messages in the queue, and those that a worker holds."""
        ready = messages(self.url, queue)  # on a Redis-protocol broker with what is held
        if self.kind == "redis":
            return ready
        return ready + sum(int(one.get("messages_unacknowledged", 0)) for one in self._queues() if one["name"] == queue)

    def _queues(self) -> list[dict[str, Any]]:
        # The user must not stand in the URL: urllib takes none there.
        parts = urlsplit(self.api)
        vhost = quote(urlsplit(self.url).path.lstrip("/") or "/", safe="")
        url = f"{parts.scheme}://{parts.hostname}:{parts.port}{parts.path}queues/{vhost}"
        passwords = urllib.request.HTTPPasswordMgrWithPriorAuth()
        passwords.add_password(None, url, parts.username or "", parts.password or "", is_authenticated=True)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPBasicAuthHandler(passwords)
        )
        with opener.open(url, timeout=20) as answer:
            return list(json.load(answer))
