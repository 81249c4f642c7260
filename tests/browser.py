"""A headless browser for the tests of pages: Debian's chromium, driven by playwright.

    def test_a_page(browser: Browser) -> None:
        page = browser.open("http://127.0.0.1:8000/letters", login=("user", "password"))
        expect(page.get_by_role("heading")).to_have_text("Letters")
        browser.assert_quiet()

Nothing but the loopback interface is reached: a page that asks for more is in trouble.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Chromium
    from playwright.sync_api import BrowserContext, Locator, Page, Response, Route

HOW_TO_GET = "chromium is not installed (apt-get install chromium)"
#: The folder that screenshots are written to; unset: none are.
SCREENSHOTS = "HARNESS_SCREENSHOTS"
#: Milliseconds that a page may take; generous, for the machine is shared.
PATIENCE = 60_000

_ARGUMENTS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find_chromium() -> str | None:
    """The browser's program, or None where there is none."""
    return next((path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), None)


def chromium_missing() -> str | None:
    """Why browser tests can't run and how to change that, or None."""
    if find_chromium() is None:
        return HOW_TO_GET
    return None if util.find_spec("playwright") else "playwright is not installed (make setup)"


class Browser:
    """A running browser. ``troubles``: what went wrong in its pages, a line each."""

    def __init__(self, chromium: Chromium) -> None:
        self._chromium = chromium
        self._contexts: list[BrowserContext] = []
        self.troubles: list[str] = []

    def open(self, url: str, *, login: tuple[str, str] | None = None, width: int = 1200, height: int = 800) -> Page:
        """A page of its own (no cookies of others) at ``url``; ``login``: name and password for basic auth."""
        context = self._chromium.new_context(
            viewport={"width": width, "height": height},
            http_credentials={"username": login[0], "password": login[1]} if login else None,
        )
        self._contexts.append(context)
        context.set_default_timeout(PATIENCE)
        context.route("**/*", self._on_loopback)
        page = context.new_page()
        page.on("pageerror", lambda error: self.troubles.append(f"{page.url}: script: {error}"))
        page.on("response", self._look_at)
        page.goto(url)
        return page

    def assert_quiet(self) -> None:
        """No script has failed, no answer was an error, nobody but this machine was asked; since the last look."""
        troubles, self.troubles = self.troubles, []
        assert troubles == []

    def shot(self, part: Page | Locator, name: str) -> None:
        """Write ``name``.png where screenshots are wanted."""
        if folder := os.environ.get(SCREENSHOTS):
            Path(folder).mkdir(parents=True, exist_ok=True)
            part.screenshot(path=Path(folder, f"{name}.png"), animations="disabled")

    def forget(self) -> None:
        """Close every page."""
        for context in self._contexts:
            context.close()
        self._contexts.clear()

    def _on_loopback(self, route: Route) -> None:
        if urlsplit(route.request.url).hostname in ("127.0.0.1", "localhost", None):
            route.continue_()
        else:
            self.troubles.append(f"asks for {route.request.url}")
            route.abort()

    def _look_at(self, response: Response) -> None:
        if response.status >= 400:
            self.troubles.append(f"{response.status} {response.url}")


@contextmanager
def running() -> Iterator[Browser]:
    """A browser with an empty profile, ended with the block."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_chromium(), args=_ARGUMENTS)
        browser = Browser(chromium)
        yield browser
        browser.forget()
        chromium.close()
