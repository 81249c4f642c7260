"""Redis-protocol brokers: which of two messages in a receiver's hand is the other one, given again."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.dev.valkey import Valkey
from tests.receive.running import Receiver
from tests.worker.running import State, until


def envelope(message_id: str, **more: Any) -> str:
    """As a sender writes it who gives each message the same tag."""
    where = {"exchange": "", "routing_key": "orders"}
    properties = {"delivery_tag": "always", "delivery_info": where, "message_id": message_id}
    return json.dumps({"body": '{"item": "tea"}', "content-type": "application/json", "properties": properties} | more)


@pytest.mark.redis
def test_the_same_tag_and_body_are_not_the_same_message(own_redis: Valkey, database: str, tmp_path: Path) -> None:
    state = State(database)
    ids = {f"o{number}" for number in range(5)}
    own_redis.client().lpush("orders", *(envelope(one, headers={}) for one in sorted(ids)))
    receiver = Receiver(own_redis.url, database, tmp_path / "log", "orders").start()
    try:
        until(lambda: state.sql("SELECT count(*) FROM core.inbox")[0][0] == 5, 20, "each is stored")
        until(lambda: not own_redis.client().exists("orders", "unacked", "unacked_index"), 20, "each is acknowledged")
        assert {row.job_id for row in state.sql("SELECT job_id FROM core.inbox")} == ids
    finally:
        receiver.kill()
        state.close()
