"""A user of a Redis-protocol server that may do what a worker needs, and one that lacks a right."""

from pathlib import Path

from harness.dev.valkey import Valkey
from tests.check.test_servers import RIGHTS
from tests.worker.canvas import new
from tests.worker.running import State, Worker, client, until


def limited(server: Valkey, rules: str) -> str:
    server.client().execute_command("ACL", "SETUSER", "shop", "on", ">shop", *rules.split())
    return server.url.replace(f":{server.password}@", "shop:shop@")


def test_the_rights_that_the_docs_name_are_enough(
    own_redis: Valkey, database: str, state: State, tmp_path: Path
) -> None:
    url = limited(own_redis, RIGHTS.replace("~billing*", "~jobs*"))
    worker, sender = Worker(url, database, tmp_path / "log").start(), client(url)
    try:
        good, again, held = new(), new(), new()
        sender.send_task("credit", task_id=good, priority=5)
        sender.send_task("fails_until", kwargs={"good": 2}, task_id=again)
        sender.send_task("credit", kwargs={"pause": 2}, task_id=held)
        until(lambda: state.sql("SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'"), 60)
        worker.kill()
        worker.start()
        for job_id in (good, again, held):
            until(lambda job_id=job_id: state.settled(job_id), 60)
            assert state.effects(job_id) == 1
        assert sender.control.ping(timeout=5)
        assert "permission" not in worker.log.read_text()
    finally:
        worker.stop()
        sender.close()


def test_a_right_that_is_missing_is_told_and_no_storm(own_redis: Valkey, database: str, tmp_path: Path) -> None:
    """The worker goes on when it has been given."""
    url = limited(own_redis, f"{RIGHTS.replace('~billing*', '~jobs*')} -evalsha -eval")
    worker, sender = Worker(url, database, tmp_path / "log"), client(own_redis.url)
    worker.launch()
    try:
        until(lambda: worker.has_logged("names a right that is missing"), 60)
        before = worker.text().count("\n")
        until(lambda: worker.text().count("names a right that is missing") >= 5, 60)
        assert worker.text().count("\n") - before < 400
        limited(own_redis, "+eval +evalsha")
        assert until(lambda: sender.control.ping(timeout=1), 60)
    finally:
        worker.stop()
        sender.close()
