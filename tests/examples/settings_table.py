"""The settings table of README.md, made of the settings. `python -m tests.examples.settings_table` writes it."""

import re
from pathlib import Path
from typing import Any

from harness.worker.settings import Settings

README = Path(__file__).resolve().parents[2] / "README.md"
PLACE = re.compile(r"(<!-- settings: [^\n]*-->\n).*?(<!-- /settings -->)", re.S)
#: Where the default is not the field's own.
DEFAULTS = {"service": "the app's name", "database_url": "none, must be set"}


def table() -> str:
    """Markdown: one line for each field of `Settings`."""
    lines = ["| setting | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = DEFAULTS.get(name) or f"`{_plain(field.default)}`"
        lines.append(f"| `harness_{field.alias or name}` | {default} | {field.description} |")
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> Any:
    return repr(int(value)) if isinstance(value, float) and value.is_integer() else repr(value)


def written() -> str:
    """The table as README.md has it now."""
    found = PLACE.search(README.read_text(encoding="utf-8"))
    assert found is not None, "README.md has lost the place of its settings table"
    return found[0].removeprefix(found[1]).removesuffix(found[2])


if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    README.write_text(PLACE.sub(lambda found: found[1] + table() + found[2], text), encoding="utf-8")
