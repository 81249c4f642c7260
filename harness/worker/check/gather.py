"""Asks the servers. A server that cannot be reached is a fact like any other."""

import contextlib
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

from harness.core.masked import masked
from harness.store import server
from harness.worker.check import rabbitmq, redis
from harness.worker.check.facts import Facts, Options
from harness.worker.check.queues import configured

if TYPE_CHECKING:
    from harness.worker.harness import Harness

#: Seconds that a broker may take to accept a connection.
PATIENCE = 5.0


def at_start(harness: "Harness", options: Options) -> Facts:
    """What a worker looks at before it starts: its configuration, and the database in one connection."""
    facts = Facts(harness, harness.settings, options)
    _ask_database(facts)
    return facts


def everything(harness: "Harness", management: str | None = None) -> Facts:
    """What `harness check` looks at. `management`: URL of RabbitMQ's management API."""
    facts = Facts(harness, harness.settings)
    _ask_database(facts, thorough=True)
    _ask_broker(facts, management)
    return facts


def _ask_database(facts: Facts, *, thorough: bool = False) -> None:
    settings = facts.settings
    try:
        facts.database = server.read(settings.database_url, settings.schema_name, settings.service, thorough=thorough)
    except DBAPIError as error:
        facts.database_problem = _line(error.orig or error)


def _ask_broker(facts: Facts, management: str | None) -> None:
    connection = None
    try:
        connection = facts.broker
        kind = str(connection.transport.driver_type)  # not of the facts: here a URL without a transport raises
        if kind not in ("amqp", "redis"):
            return
        connection.ensure_connection(max_retries=1, interval_start=0, timeout=PATIENCE)
        if kind == "redis":
            facts.redis = redis.read(connection, facts.harness.app)
        elif "rabbit" in str(connection.connection.server_properties.get("product", "")).lower():
            facts.rabbitmq = rabbitmq.read(connection, configured(facts.harness.app), management)
    except Exception as error:  # each transport has its own
        facts.broker_problem = _line(error)
    finally:
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.release()


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return masked(text)[:300]
