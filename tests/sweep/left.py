"""What a broker still has, with what was delivered and not acknowledged."""

from __future__ import annotations

import json
import urllib.request
from typing import Any
from urllib.parse import quote, urlsplit

from tests.services import Servers
from tests.worker.queues import messages


class Broker:
    """A place of its own on a shared broker: a virtual host, or a database."""

    def __init__(self, servers: Servers, kind: str) -> None:
        self.kind = kind
        self.url = servers.rabbitmq_url() if kind == "rabbitmq" else servers.redis_url()
        self._api = servers.rabbitmq_api() if kind == "rabbitmq" else ""

    def left(self, queue: str) -> int:
        """Messages in the queue, and those that a worker holds."""
        ready = messages(self.url, queue)  # on a Redis-protocol broker with what is held
        if self.kind == "redis":
            return ready
        return ready + sum(int(one.get("messages_unacknowledged", 0)) for one in self._queues() if one["name"] == queue)

    def _queues(self) -> list[dict[str, Any]]:
        # The user must not stand in the URL: urllib takes none there.
        parts = urlsplit(self._api)
        vhost = quote(urlsplit(self.url).path.lstrip("/") or "/", safe="")
        url = f"{parts.scheme}://{parts.hostname}:{parts.port}{parts.path}queues/{vhost}"
        passwords = urllib.request.HTTPPasswordMgrWithPriorAuth()
        passwords.add_password(None, url, parts.username or "", parts.password or "", is_authenticated=True)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPBasicAuthHandler(passwords)
        )
        with opener.open(url, timeout=20) as answer:
            return list(json.load(answer))
