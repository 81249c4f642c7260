"""Every snippet of the documentation does what its page says: Python is run, command lines are parsed."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import split_arg_string

from harness.cli import harness as commands
from tests.docs.pages import DOCS, PAGES, ROOT, blocks, name

#: Its files and commands are run by test_tutorial.
TUTORIAL = DOCS / "tutorial.md"


def python(page: Path) -> str:
    return "\n\n".join(block.text for block in blocks(page) if block.language == "python" and block.runs)


WITH_PYTHON = [page for page in PAGES if page != TUTORIAL and python(page)]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name)
def test_python(page: Path, database: str, redis_url: str, tmp_path: Path) -> None:
    """All Python of a page, from top to bottom, as one module."""
    text = python(page)
    file = tmp_path / "test_page.py"
    file.write_text(text)
    command = [sys.executable, "-W", "error::SyntaxWarning", str(file)]
    if "\ndef test_" in text or "\nasync def test_" in text:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(tmp_path),
            str(file),
        ]
    env = os.environ | {"HARNESS_DATABASE_URL": database, "CELERY_BROKER_URL": redis_url}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def command_lines() -> list[tuple[str, str]]:
    return [
        (name(page), line)
        for page in [ROOT / "README.md", *PAGES]
        for block in blocks(page)
        if block.language in ("sh", "bash", "shell")
        for line in block.lines
        if " harness " in line and "celery " in line
    ]


@pytest.mark.parametrize(("page", "line"), command_lines())
def test_a_command_line(page: str, line: str) -> None:
    """Each `celery -A … harness …` line is understood by the real command, with these options and values."""
    words = split_arg_string(line.split(" #")[0])
    words = words[words.index("harness") + 1 :]
    for stop in (";", "&&", "||", "|", ">", "&"):
        if stop in words:
            words = words[: words.index(stop)]
    command: click.Command = commands
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    if words != ["--help"]:
        assert not isinstance(command, click.Group), f"{page}: no command in {line!r}"
        command.make_context(command.name, words)  # raises UsageError for what it does not know


def test_the_lines_are_found() -> None:
    """The tests above would pass on a page that they can't read."""
    pages = {page for page, _ in command_lines()}
    assert {"README.md", "docs/tutorial.md", "docs/howto/runbook.md", "docs/howto/adopt.md"} <= pages
    assert len(WITH_PYTHON) >= 6


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_is_not_run_says_why(page: Path) -> None:
    for block in blocks(page):
        assert block.language in ("python", "sh", "text", "toml", "yaml", "ini", "sql", "json", "dockerfile"), block
        if not block.runs:
            assert len(block.mark) > len("not run: x"), block
