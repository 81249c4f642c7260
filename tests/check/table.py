"""The table of checks in docs/howto/check.md, made of the checks. `python -m tests.check.table` writes it."""

import re
from pathlib import Path

from harness.worker.check import CHECKS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "check.md"
PLACE = re.compile(r"(<!-- checks: [^\n]*-->\n).*?(<!-- /checks -->)", re.S)


def table() -> str:
    """Markdown: one line for each check."""
    lines = ["| check | looks at | verdict | at start | what it means, what to do |", "|---|---|---|---|---|"]
    for check in CHECKS.values():
        text = f"{check.means} **{check.do}**" if check.do else "A note only."
        lines.append(f"| `{check.name}` | {_cell(check.about)} | {check.verdict} | {check.start} | {_cell(text)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def written() -> str:
    """The table as the page has it now."""
    found = PLACE.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None, "the page has lost the place of its table"
    return found[0].removeprefix(found[1]).removesuffix(found[2])


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(PLACE.sub(lambda found: found[1] + table() + found[2], text), encoding="utf-8")
