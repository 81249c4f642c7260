"""The blocks of code in the documentation's pages."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))

_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?^```(?P<language>\w+)(?P<options>[^\n]*)\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """`mark` is the comment right above the block, `title` its file name; both may be empty."""

    language: str
    text: str
    mark: str
    title: str

    @property
    def runs(self) -> bool:
        return not self.mark.startswith("not run:")

    @property
    def lines(self) -> list[str]:
        """A shell block's commands: continued lines joined, comments and empty lines left out."""
        joined = self.text.replace("\\\n", " ")
        return [line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def blocks(page: Path) -> list[Block]:
    """All blocks of a page in their order."""
    found = _BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [
        Block(
            language=match["language"],
            text=match["text"],
            mark=match["mark"] or "",
            title=next(iter(re.findall(r'title="([^"]+)"', match["options"])), ""),
        )
        for match in found
    ]


def name(page: Path) -> str:
    """The page's path, as a test's id."""
    return str(page.relative_to(ROOT))


def alike(text: str) -> str:
    """`text` without what differs between two runs: times, numbers, ids, widths of columns."""
    text = re.sub(r"\b[0-9a-f]{16}\b", "HEX", text)
    text = re.sub(r"\b(\d+[dhms] ?)+", "SPAN ", text)
    text = re.sub(r"\d+", "N", text)
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())
