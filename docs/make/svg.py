"""A few shapes for drawings: boxes, arrows and text, legible on light and on dark pages.

Colours come from the page's own theme where the drawing stands inside it, and from the reader's system elsewhere.
"""

from dataclasses import dataclass, field
from xml.sax.saxutils import escape

_STYLE = """
svg.drawing { --ink: #1f2328; --soft: #6b7280; --good: #15803d; --bad: #b91c1c; --wait: #a16207; --face: #f3f4f6;
  font: 14px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { svg.drawing { --ink: #e5e7eb; --soft: #9ca3af; --good: #4ade80; --bad: #f87171;
  --wait: #facc15; --face: #262b33; } }
[data-md-color-scheme="default"] svg.drawing { --ink: #1f2328; --soft: #6b7280; --good: #15803d; --bad: #b91c1c;
  --wait: #a16207; --face: #f3f4f6; }
[data-md-color-scheme="slate"] svg.drawing { --ink: #e5e7eb; --soft: #9ca3af; --good: #4ade80; --bad: #f87171;
  --wait: #facc15; --face: #262b33; }
svg.drawing text { fill: var(--ink); stroke: none; }
svg.drawing .soft { fill: var(--soft); font-size: 12.5px; }
svg.drawing rect { fill: var(--face); stroke: var(--ink); stroke-width: 1.3; }
svg.drawing .good { stroke: var(--good); stroke-width: 2.2; }
svg.drawing .bad { stroke: var(--bad); stroke-width: 2.2; }
svg.drawing .wait { stroke: var(--wait); stroke-width: 2.2; }
svg.drawing .frame { fill: none; stroke: var(--soft); stroke-dasharray: 5 4; }
svg.drawing path { fill: none; stroke: var(--ink); stroke-width: 1.4; }
svg.drawing path.dashed { stroke-dasharray: 5 4; }
svg.drawing path.life { stroke: var(--soft); stroke-width: 1; }
svg.drawing .tip { fill: var(--ink); stroke: none; }
""".strip()


@dataclass
class Drawing:
    """`title` and `text` are what a screen reader says in place of the drawing."""

    name: str
    width: int
    height: int
    title: str
    text: str
    _parts: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, w: float, h: float, *lines: str, kind: str = "") -> None:
        """A box with centred lines of text; `kind`: good, bad, wait or frame."""
        mark = f' class="{kind}"' if kind else ""
        self._parts.append(f'<rect{mark} x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="5"/>')
        top = y + h / 2 - (len(lines) - 1) * 8.5 + 5
        for number, line in enumerate(lines):
            self.say(x + w / 2, top + 17 * number, line, soft=number > 0)

    def say(self, x: float, y: float, line: str, *, at: str = "middle", soft: bool = False) -> None:
        """A line of text; `at`: start, middle or end."""
        mark = ' class="soft"' if soft else ""
        self._parts.append(f'<text{mark} x="{x:g}" y="{y:g}" text-anchor="{at}">{escape(line)}</text>')

    def arrow(self, *points: tuple[float, float], dashed: bool = False, head: bool = True) -> None:
        """A line through the points, with a head at its end. Its last piece is horizontal or vertical."""
        way = " L".join(f"{x:g} {y:g}" for x, y in points)
        mark = ' class="dashed"' if dashed else ""
        self._parts.append(f'<path{mark} d="M{way}"/>')
        if head:
            (x0, y0), (x, y) = points[-2:]
            dx, dy = ((x > x0) - (x < x0), (y > y0) - (y < y0))
            left = f"{x - 8 * dx - 4 * dy:g},{y - 8 * dy - 4 * dx:g}"
            right = f"{x - 8 * dx + 4 * dy:g},{y - 8 * dy + 4 * dx:g}"
            self._parts.append(f'<polygon class="tip" points="{x:g},{y:g} {left} {right}"/>')

    def life(self, x: float, top: float, bottom: float) -> None:
        """The thin line of somebody who takes part in a sequence."""
        self._parts.append(f'<path class="life" d="M{x:g} {top:g} L{x:g} {bottom:g}"/>')

    def svg(self) -> str:
        """The whole file."""
        ids = f"{self.name}-title", f"{self.name}-text"
        head = (
            f'<svg class="drawing" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'role="img" aria-labelledby="{ids[0]} {ids[1]}" style="max-width: {self.width}px; width: 100%">'
        )
        said = f'<title id="{ids[0]}">{escape(self.title)}</title><desc id="{ids[1]}">{escape(self.text)}</desc>'
        return "\n".join([head, said, f"<style>{_STYLE}</style>", *self._parts, "</svg>", ""])
