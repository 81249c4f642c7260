"""The site is built strictly, says what the code says, and needs nothing from the network."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import click
import pytest

from harness.cli import harness as commands
from harness.core.reason import Reason
from harness.observe import log
from harness.store.schema import tables_of
from harness.worker.settings import Settings
from tests.docs.pages import DOCS, PAGES, ROOT, name

MAKE = DOCS / "make"


@pytest.fixture(scope="module")
def site() -> Path:
    """The strict build, with every proxy pointing nowhere."""
    nowhere = dict.fromkeys(
        ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9"
    )
    command = [sys.executable, str(MAKE / "build.py")]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | nowhere, capture_output=True, text=True, timeout=300, check=False
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "Warning" not in output
    return ROOT / "site"


class Loaded(HTMLParser):
    """What a browser fetches for a page without being asked."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.classes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self.classes |= set(values.get("class", "").split())
        self.urls += [values[key] for key in ("src", "srcset", "data", "poster", "action") if key in values]
        if tag == "link":
            self.urls.append(values.get("href", ""))
        self.urls += re.findall(r"url\(['\"]?([^'\")]+)", values.get("style", ""))


def foreign(url: str) -> bool:
    return re.match(r"\s*(?:[a-z][a-z0-9+.-]*:)?//", url, re.I) is not None


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) >= len(PAGES)
    for page in pages:
        loaded = Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        assert loaded.urls, page
        assert [url for url in loaded.urls if foreign(url)] == [], page
        # The theme's script would fetch these from a CDN.
        assert not loaded.classes & {"mermaid", "glightbox"}, page
    styles = sorted(site.rglob("*.css"))
    assert styles
    for sheet in styles:
        text = sheet.read_text(encoding="utf-8")
        assert [url for url in re.findall(r"(?:url\(|@import )['\"]?([^'\")]+)", text) if foreign(url)] == [], sheet


def test_the_check_above_sees_a_font() -> None:
    loaded = Loaded()
    loaded.feed('<link rel="stylesheet" href="https://fonts.example/css"><script src="//cdn.example/x.js"></script>')
    assert [foreign(url) for url in loaded.urls] == [True, True]
    assert not foreign("../assets/x.css")


def text_of(site: Path, page: str) -> str:
    """The page as a reader sees it."""
    html = (site / page).read_text(encoding="utf-8")
    return unescape(re.sub(r"<[^>]+>", "", html[html.index("<article") : html.index("</article")]))


def every_command(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for word, inner in command.commands.items():
            yield from every_command(inner, f"{path} {word}")


def test_the_commands_are_those_of_the_code(site: Path) -> None:
    shown = text_of(site, "reference/cli.html")
    for path, command in every_command(commands, "celery -A yourapp harness"):
        expected = command.get_help(click.Context(command, info_name=path, terminal_width=100))
        assert expected in shown, path


def test_the_settings_are_those_of_the_code(site: Path) -> None:
    shown = text_of(site, "reference/settings.html")
    names = re.findall(r"\bharness_\w+\b", shown)
    assert {f"harness_{field.alias or key}" for key, field in Settings.model_fields.items()} <= set(names)


def test_every_column_has_a_meaning(site: Path) -> None:
    shown = text_of(site, "reference/tables.html")
    for table in tables_of("core").metadata.sorted_tables:
        for column in table.columns:
            assert column.name in shown, f"{table.name}.{column.name}"
    source = (ROOT / "build" / "docs" / "reference" / "tables.md").read_text(encoding="utf-8")
    rows = [line for line in source.splitlines() if line.startswith("| `")]
    assert len(rows) == sum(len(table.columns) for table in tables_of("core").metadata.sorted_tables)
    assert all(len(row.split("|")[-2].strip()) > 4 for row in rows)


def test_reasons_and_events(site: Path) -> None:
    reasons, events = text_of(site, "reference/reasons.html"), text_of(site, "reference/events.html")
    assert all(str(reason) in reasons for reason in Reason)
    assert all(event.__name__ in events for event in log._NAMES)


def test_the_api_has_its_docstrings(site: Path) -> None:
    import harness

    shown = text_of(site, "reference/api.html")
    for public in harness.__all__:
        if public != "HarnessError":
            first = (getattr(harness, public).__doc__ or "").strip().splitlines()[0].split("`")[0]
            assert first.strip() in shown, public


@pytest.mark.parametrize("picture", sorted((DOCS / "pictures").glob("*.svg")), ids=name)
def test_a_picture(picture: Path) -> None:
    """It can be read out, and takes its colours from a light and a dark palette, of page and system."""
    root = ET.fromstring(picture.read_text(encoding="utf-8"))
    svg = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    told = {root.find(f"{svg}title"), root.find(f"{svg}desc")}
    assert {element.get("id") for element in told if element is not None} == set(
        (root.get("aria-labelledby") or "").split()
    )
    assert all(element is not None and element.text for element in told)
    style = root.findtext(f"{svg}style") or ""
    assert "prefers-color-scheme: dark" in style
    assert 'data-md-color-scheme="slate"' in style


def test_the_pictures_are_those_of_the_code(site: Path) -> None:
    code = "import json, pictures; print(json.dumps(pictures.files()))"
    made = subprocess.run([sys.executable, "-c", code], cwd=MAKE, capture_output=True, text=True, check=True).stdout
    import json

    kept = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "pictures").glob("*.svg")}
    assert kept == json.loads(made), "run: python docs/make/pictures.py"
    assert text_of(site, "explanation/laws.html").count("Two copies of a job at the same moment") == 1
