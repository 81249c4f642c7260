"""What Flower's pages say of each job, beside what the database says: as an operator sees it, on each broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser import Browser
from tests.flower.conftest import HIDDEN, SECRET, Site
from tests.worker.running import until

#: The state that Flower shows, and how its exception begins ("" for none).
SHOWN = {
    "unknown": ("RETRY", "LookupError("),
    "succeeded": ("SUCCESS", ""),
    "retried": ("RETRY", "BankSilent('no answer for 4711 in 5 s"),
    "dead": ("FAILURE", "Permanent('customer 7 has no address')"),
    "replayed": ("FAILURE", "LookupError('no customer 8')"),
    "killed": ("FAILURE", "WorkerLostError("),
    "invalid": ("FAILURE", "harness.core.errors.InvalidPayload("),
    "revoked": ("REVOKED", "Revoked('revoked by its id before it ran')"),
    "expired": ("REVOKED", "Expired('expired at "),
    "foreign": ("FAILURE", "ValueError('no Celery message: "),
    "waits for its eta": ("RETRY", "Eta('waits until "),
    "secret": ("SUCCESS", ""),
    "plain": ("SUCCESS", ""),
    "runs": ("SUCCESS", ""),
}
#: Rows of a task's page that a screenshot leaves out: they differ from machine to machine.
LEFT_OUT = ["Worker", "Traceback", "Client", "Clock", "Timestamp", "Exchange", "Root", "Root id", "Children"]
#: And what says nothing here.
LEFT_OUT += ["Arguments", "Routing key", "Sent"]


@pytest.fixture(autouse=True)
def _nobody_complains(site: Site, browser: Browser) -> Iterator[None]:
    """No script fails, no answer is an error, nothing stands in Flower's log."""
    yield
    browser.assert_quiet()
    assert site.complaints() == []


def row(page: Page, name: str) -> str:
    """The value of a row of a task's page; empty without one."""
    rows = page.locator(".detail-row").filter(has=page.get_by_text(name, exact=True))
    return rows.locator("dd").inner_text().split("\nCopy")[0].strip() if rows.count() else ""


def shown(page: Page) -> dict[str, str]:
    expect(page.locator("#task-page")).to_be_visible()
    return {name: row(page, name) for name in ("UUID", "Status", "Exception", "Result", "Keyword arguments", "ETA")}


def shoot(browser: Browser, page: Page, name: str) -> None:
    """A picture of a task's page for the docs."""
    page.evaluate(
        """names => document.querySelectorAll(".detail-row").forEach(
               row => names.includes(row.querySelector("dt").textContent.trim()) && row.remove())""",
        LEFT_OUT,
    )
    browser.shot(page.locator("#task-page"), name)


def test_each_job_has_its_state_its_error_and_its_id(site: Site, browser: Browser) -> None:
    page = site.open(browser, width=820, height=1600)
    seen = {}
    for story, (state, error) in SHOWN.items():
        site.await_state(story, state)
        if story == "succeeded":
            # The producer's event may come after those of the worker.
            until(lambda story=story: site.told(story).get("sent"), 60, "the event of the producer")
        page.goto(f"{site.url}/task/{site.ids[story]}")
        says = seen[story] = shown(page)
        assert (says["UUID"], says["Status"]) == (site.ids[story], state), story
        assert says["Exception"].startswith(error), (story, says)
        assert bool(says["Exception"]) == bool(error), (story, says)
        assert bool(says["ETA"]) == (state == "RETRY"), (story, says)
        assert bool(row(page, "Sent")) == (story == "succeeded"), story
        if story in ("dead", "retried"):
            shoot(browser, page, f"flower-{story}")
    # A minute or two after it was sent, the task that nobody knows is a dead letter.
    passing = {site.ids["unknown"]}
    letters = {letter["job_id"]: letter for letter in site.harness("dead-letters", "list")}
    dead = {site.ids[story]: story for story, (state, _) in SHOWN.items() if state in ("FAILURE", "REVOKED")}
    assert letters.keys() - passing == dead.keys()
    for job_id, story in dead.items():
        letter = letters[job_id]
        assert letter["error_message"].splitlines()[0] in seen[story]["Exception"], story
        assert letter["error_type"].rpartition(".")[2] in seen[story]["Exception"], story
    waiting = {site.ids[story] for story, (state, _) in SHOWN.items() if state == "RETRY"}
    assert {entry[0] for entry in site.state.sql("SELECT job_id FROM core.inbox")} | passing == waiting


def test_a_copy_of_a_job_changes_nothing(site: Site, browser: Browser) -> None:
    copies: dict[str, tuple[str, dict[str, Any]]] = {
        "succeeded": ("shop.credit_points", {"account_id": 7, "points": 50}),
        "dead": ("shop.send_invoice", {"customer": 7}),
        "waits for its eta": ("shop.credit_points", {"account_id": 3, "points": 1}),
    }
    page = site.open(browser)
    for story, (task, kwargs) in copies.items():
        state, error = SHOWN[story]
        before, since = site.await_state(story, state), time.time()
        site.send(story, task, kwargs=kwargs)
        site.await_state(story, state, since)
        page.goto(f"{site.url}/task/{site.ids[story]}")
        says = shown(page)
        assert says["Status"] == state
        assert says["Exception"].startswith(error)
        assert says["Result"] == str(before["result"]), "that of the run that took effect"
    assert site.state.sql("SELECT count(*) FROM credits WHERE account_id IN (3, 7)")[0][0] == 1


def test_a_replay_shows_how_it_ends(site: Site, browser: Browser) -> None:
    site.await_state("replayed", "FAILURE")
    letter, since = site.letter("replayed"), time.time()
    assert letter["job_id"] == site.ids["replayed"]
    site.harness("dead-letters", "replay", str(letter["id"]))
    known = site.await_state("replayed", "FAILURE", since)
    assert known["retried"] >= since, "it was no longer shown as a failure while it waited"
    until(lambda: site.letter("replayed")["status"] == "pending_review", 30, "the letter is open again")

    site.state.sql("INSERT INTO customers VALUES (8)")
    site.harness("dead-letters", "replay", str(letter["id"]))
    site.await_state("replayed", "SUCCESS", since)
    page = site.open(browser, f"task/{letter['job_id']}", width=820, height=1600)
    says = shown(page)
    assert (says["Status"], says["UUID"]) == ("SUCCESS", letter["job_id"])
    assert says["Result"] == "'account of 8'"
    assert site.state.letter(letter["job_id"]) is None
    shoot(browser, page, "flower-replayed")


def test_a_secret_argument_is_nowhere(site: Site, browser: Browser) -> None:
    known = site.await_state("secret", "SUCCESS")
    page = site.open(browser, f"task/{site.ids['secret']}")
    assert shown(page)["Keyword arguments"] == HIDDEN
    assert str(SECRET) not in page.content() + str(known)
    assert site.state.sql("SELECT points FROM credits WHERE account_id = :id", id=SECRET)[0][0] == 1


def test_the_list_filters_sorts_and_searches(site: Site, browser: Browser) -> None:
    page = site.open(browser, "tasks", width=1200, height=800)

    def cells(number: int) -> list[str]:
        return page.locator(f"#tasks-table tbody tr td:nth-child({number})").all_inner_texts()

    def soon(condition: Callable[[], bool], what: str) -> None:
        for _ in range(300):
            if condition():
                return
            page.wait_for_timeout(100)
        raise AssertionError(f"not within 30 s: {what}; {cells(1)} {cells(2)} {cells(3)}")

    # Beat's own tasks are more with each minute.
    page.get_by_role("searchbox").fill("name:shop")
    ours = {site.ids[story] for story in SHOWN if story != "foreign"}
    soon(lambda: ours <= set(cells(2)), "a row for each job")
    browser.shot(page, "flower-tasks")
    for button, state in (("Retried", "RETRY"), ("Failed", "FAILURE"), ("Succeeded", "SUCCESS")):
        page.get_by_role("button", name=button).click()
        soon(lambda state=state: set(cells(3)) == {state}, f"only {state}")
    page.get_by_role("searchbox").fill("state:FAILURE name:shop.send_invoice")
    soon(lambda: cells(2) == [site.ids["dead"]], "the one that was searched for")
    page.get_by_role("searchbox").fill("name:shop")
    soon(lambda: ours <= set(cells(2)), "a row for each job again")
    for column, heading in ((1, "Name"), (3, "State")):
        page.locator(".dataTables_scrollHead th").filter(has_text=heading).click()
        soon(lambda column=column: len(cells(column)) > 9 and cells(column) == sorted(cells(column)), heading)


def test_the_pages_of_worker_and_broker(site: Site, browser: Browser) -> None:
    page = site.open(browser, "workers")
    expect(page.locator("#workers-online")).to_have_text("1")
    page.locator("#workers-table tbody a").first.click()
    expect(page.locator("#workername")).to_have_text(f"{site.await_state('succeeded', 'SUCCESS')['worker']}")
    for tab in page.locator(".worker-tabs-nav a").all():
        tab.click()
        expect(page.locator(str(tab.get_attribute("data-bs-target")))).to_be_visible()
    page.locator("#worker-tab-tasks").click()
    expect(page.locator("#tab-tasks")).to_contain_text("shop.credit_points")
    page.goto(f"{site.url}/broker")
    expect(page.locator("#queue-table tbody")).to_contain_text("shop")


def test_revoke_and_terminate(site: Site, browser: Browser) -> None:
    running = site.send("terminated", "shop.import_orders", kwargs={"seconds": 120})
    waiting = site.send("revoked while it waits", "shop.charge_card", kwargs={"order": "4712"})
    page = site.open(browser)
    for story, state, button in (
        ("terminated", "STARTED", "Terminate"),
        ("revoked while it waits", "RETRY", "Revoke"),
    ):
        site.await_state(story, state)
        page.goto(f"{site.url}/task/{site.ids[story]}")
        page.get_by_role("button", name=button).click()
        expect(page.locator("#toast-container")).to_contain_text("evoke")
    # It waits for its next try, when a worker looks whether it was revoked: now.
    site.state.sql("UPDATE core.inbox SET available_at = now() WHERE job_id = :id", id=waiting)
    for job_id, story in ((running, "terminated"), (waiting, "revoked while it waits")):
        site.await_state(story, "REVOKED")
        page.goto(f"{site.url}/task/{job_id}")
        assert shown(page)["Status"] == "REVOKED"
        assert site.state.letter(job_id).reason == "revoked"


def test_a_login_is_needed(site: Site, browser: Browser) -> None:
    page = browser.open(f"{site.url}/healthcheck")
    assert page.inner_text("body") == "OK"
    assert page.request.get(f"{site.url}/tasks").status == 401
    assert page.request.get(f"{site.url}/api/tasks").status == 401
