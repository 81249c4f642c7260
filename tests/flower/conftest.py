"""``site``: `harness dev` of the shop, on each broker, with a job for every way to end; Flower has been told of all."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from playwright.sync_api import Page

from harness.core.message import job_key
from harness.dev.process import free_port
from tests.browser import Browser
from tests.conftest import BROKERS
from tests.dev.test_dev_command import Dev
from tests.services import Servers
from tests.worker.forked import celery
from tests.worker.running import ROOT, State, until

APP = "tests.flower.app"
#: What a page shows of a secret argument.
HIDDEN = "{'account_id': '…', 'points': 1}"
SECRET = 987_654_321
#: A message that is none of Celery's.
FOREIGN = b'{"event": "order.paid"}'
#: The time of the event that left a state.
TIMES = {"SUCCESS": "succeeded", "FAILURE": "failed", "RETRY": "retried", "REVOKED": "revoked", "STARTED": "started"}


class Site:
    """A running `harness dev`: ``ids`` has the job of each story."""

    def __init__(self, dev: Dev, url: str, login: tuple[str, str], client: Celery, state: State, env: dict[str, str]):
        self.dev, self.url, self.login, self.client, self.state, self.env = dev, url, login, client, state, env
        self.ids: dict[str, str] = {}

    def send(self, story: str, task: str, **more: Any) -> str:
        """Send a job; its id is that of the story."""
        job_id = self.ids.setdefault(story, f"order-{1000 + len(self.ids)}")
        # Celery's state keeper takes a job from RETRY back to PENDING where the producer's event comes last.
        self.client.conf.task_send_sent_event = story == "succeeded"
        self.client.send_task(task, task_id=job_id, queue="shop", **more)
        return job_id

    def told(self, story: str) -> dict[str, Any]:
        """What Flower knows of the story's job; empty for nothing."""
        request = urllib.request.Request(f"{self.url}/api/task/info/{self.ids[story]}")
        request.add_header("Authorization", "Basic " + base64.b64encode(":".join(self.login).encode()).decode())
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=20) as answer:
                known: dict[str, Any] = json.load(answer)
                return known
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return {}
            raise

    def await_state(self, story: str, state: str, since: float = 0.0) -> dict[str, Any]:
        """Until Flower says so, by an event that is not older than ``since``."""

        def is_so() -> dict[str, Any]:
            known = self.told(story)
            return known if known.get("state") == state and known[TIMES[state]] >= since else {}

        found: dict[str, Any] = until(is_so, 120, f"{state} of {story}")
        return found

    def harness(self, *words: str) -> Any:
        """`celery -A app harness …`, and the JSON that it prints."""
        done = celery(["-A", APP, "harness", *words, "--json"], self.env, ROOT)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def letter(self, story: str) -> dict[str, Any]:
        """What `dead-letters show` says of the story's job."""
        found: dict[str, Any] = self.harness("dead-letters", "show", str(self.state.letter(self.ids[story]).id))
        return found

    def open(self, browser: Browser, path: str = "", **more: Any) -> Page:
        return browser.open(f"{self.url}/{path}", login=self.login, **more)

    def complaints(self) -> list[str]:
        """What Flower has printed: warnings and errors only; those of `told`, who asks early, are left out."""
        printed = re.findall(r"^ *flower \| .*$", self.dev.output, re.M)
        return [line for line in printed if "404 GET /api/task/info/" not in line]


@pytest.fixture(scope="module", params=BROKERS)
def site(request: pytest.FixtureRequest, servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    database, broker = servers.databases().make(), getattr(servers, f"{request.param}_url")()
    folder = tmp_path_factory.mktemp("flower")
    env = os.environ | {
        "HARNESS_DATABASE_URL": database,
        "CELERY_BROKER_URL": broker,
        "FLOWER_PORT": str(free_port()),
        "FLOWER_TASKS_COLUMNS": "name,uuid,state,received,runtime",
    }
    if request.param == "rabbitmq":
        env["FLOWER_BROKER_API"] = servers.rabbitmq_api()
    state = State(database)
    state.sql("CREATE TABLE credits (account_id int, points int)")
    state.sql("CREATE TABLE customers (id int)")
    client = Celery("client", broker=broker, set_as_current=False)
    command = [sys.executable, "-m", "celery", "-A", APP, "harness", "dev", "--data", str(folder / "data")]
    with (folder / "output").open("w") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=out, text=True)
    dev = Dev(process, folder / "output", folder / "data")
    try:
        found = dev.wait_for(r"dev \| flower +http://(\w+):([\w-]+)@(127\.0\.0\.1:\d+)/", 300)
        dev.wait_for("started; Ctrl-C stops all", 120)
        made = Site(dev, f"http://{found[3]}", (found[1], found[2]), client, state, env)
        _tell_stories(made)
        yield made
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()
            client.close()
            state.close()
            servers.databases().drop(database)
            if request.param == "rabbitmq":
                servers.close_rabbitmq_url(broker)


def _tell_stories(site: Site) -> None:
    revoked = site.ids.setdefault("revoked", "order-1000")
    until(lambda: site.client.control.revoke(revoked, reply=True, timeout=10, limit=1), 30, "a worker that answers")
    site.send("succeeded", "shop.credit_points", kwargs={"account_id": 7, "points": 50})
    site.send("retried", "shop.charge_card", kwargs={"order": "4711"})
    site.send("dead", "shop.send_invoice", kwargs={"customer": 7})
    site.send("replayed", "shop.open_account", kwargs={"customer": 8})
    site.send("killed", "shop.render_pdf", kwargs={"order": "4711"})
    site.send("invalid", "shop.credit_points", kwargs={"account_id": 7, "points": -1})
    site.send("revoked", "shop.credit_points", kwargs={"account_id": 1, "points": 1})
    site.send("unknown", "shop.not_yet_deployed", kwargs={"order": "4711"})
    site.send("waits for its eta", "shop.credit_points", kwargs={"account_id": 3, "points": 1}, countdown=3600)
    site.send("secret", "shop.credit_points", kwargs={"account_id": SECRET, "points": 1}, kwargsrepr=HIDDEN)
    site.send("plain", "shop.plain", args=[1])
    site.ids["foreign"] = job_key(None, FOREIGN)
    with site.client.producer_pool.acquire(block=True) as producer:
        producer.publish(
            FOREIGN, exchange="", routing_key="shop", content_type="application/json", content_encoding="utf-8"
        )
    for story in ("runs", "runs, too"):
        site.send(story, "shop.import_orders", kwargs={"seconds": 3})
    # Both processes are busy: it reaches the worker in time, and its turn comes too late.
    site.send("expired", "shop.credit_points", kwargs={"account_id": 2, "points": 1}, expires=2)
