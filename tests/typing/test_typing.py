"""mypy and pyright find each wrong use, and nothing else, with a project's own settings instead of ours."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RIGHT, WRONG = HERE / "right.py", HERE / "wrong.py"
Found = dict[str, set[int]]


def mypy(cache: Path) -> Found:
    """Lines with errors, by file."""
    options = ["--strict", "--config-file=", "--ignore-missing-imports", "--no-error-summary", "--hide-error-context"]
    command = [sys.executable, "-m", "mypy", *options, "--cache-dir", str(cache), str(RIGHT), str(WRONG)]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert out.returncode in (0, 1), out.stdout + out.stderr
    found: Found = {}
    for name, line in re.findall(r"^(.+?):(\d+): error:", out.stdout, re.MULTILINE):
        found.setdefault(Path(name).name, set()).add(int(line))
    return found


def pyright(cache: Path) -> Found:
    """Likewise."""
    options = ["--outputjson", "--level", "error", "--pythonpath", sys.executable]
    command = [sys.executable, "-m", "pyright", *options, str(RIGHT), str(WRONG)]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert out.returncode in (0, 1), out.stdout + out.stderr
    report = json.loads(out.stdout)
    assert report["summary"]["filesAnalyzed"] == 2, report["summary"]
    found: Found = {}
    for one in report["generalDiagnostics"]:
        if one["severity"] == "error":
            found.setdefault(Path(one["file"]).name, set()).add(one["range"]["start"]["line"] + 1)
    return found


@pytest.mark.parametrize("check", [mypy, pyright])
def test_each_wrong_use_is_found_and_no_right_one(check: Callable[[Path], Found], tmp_path: Path) -> None:
    marked = {n for n, line in enumerate(WRONG.read_text().splitlines(), 1) if line.endswith("  # error")}
    assert len(marked) > 25
    found = check(tmp_path)
    assert found.get("right.py", set()) == set()
    assert found["wrong.py"] == marked


def test_the_package_says_that_it_is_typed() -> None:
    import harness

    assert (Path(harness.__file__).parent / "py.typed").is_file()
