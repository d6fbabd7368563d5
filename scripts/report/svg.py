"""SVG as text: a drawing on a white card, and scales from values to pixels."""

import math
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

TEXT, MUTED, GRID, AXIS = "#1f2328", "#59636e", "#e4e7eb", "#8c959f"
FONT = "Helvetica, Arial, sans-serif"
HALO = 'paint-order="stroke" stroke="#ffffff" stroke-width="3" stroke-linejoin="round"'


def px(value: float) -> str:
    """A coordinate; few digits, so that a file does not change with the machine's rounding."""
    return f"{value:.1f}".removesuffix(".0")


@dataclass(frozen=True)
class Scale:
    """Values of [low, high] to pixels of [start, end], linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(value)
        return self.start + (at - low) / (high - low) * (self.end - self.start)


def ticks(high: float) -> list[float]:
    """Round values from 0 to `high`, four to eight of them."""
    step = 1.0
    while high / step > 8:
        step *= 2.5 if str(step)[0] == "2" else 2
    return [i * step for i in range(int(high / step) + 1)]


class Drawing:
    """Shapes and text in the order in which they are drawn."""

    def __init__(self, width: int, height: int, title: str, description: str) -> None:
        self.width, self.height = width, height
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'font-family={quoteattr(FONT)} font-size="12" role="img">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(description)}</desc>",
            # A card of its own, so that it reads the same on a dark page.
            f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" '
            f'fill="#ffffff" stroke="#d1d9e0"/>',
        ]
        self.text(24, 32, title, size=16, weight="bold")
        self.text(24, 51, description, colour=MUTED)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: int = 12,
        colour: str = TEXT,
        anchor: str = "start",
        weight: str = "normal",
        turn: int = 0,
    ) -> None:
        """A line of text whose baseline is at y, with a white edge over what is below it."""
        extra = f' text-anchor="{anchor}"' if anchor != "start" else ""
        extra += f' font-size="{size}"' if size != 12 else ""
        extra += f' font-weight="{weight}"' if weight != "normal" else ""
        extra += f' transform="rotate({turn} {px(x)} {px(y)})"' if turn else ""
        self.parts.append(
            f'<text x="{px(x)}" y="{px(y)}" fill="{colour}"{extra} {HALO}>{escape(text)}</text>'
        )

    def line(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        colour: str = GRID,
        width: float = 1,
        dash: str = "",
    ) -> None:
        """A straight line."""
        self.path([(x1, y1), (x2, y2)], colour, width, dash)

    def path(
        self, points: list[tuple[float, float]], colour: str, width: float = 2, dash: str = ""
    ) -> None:
        """A line through points."""
        d = "M" + " L".join(f"{px(x)} {px(y)}" for x, y in points)
        extra = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<path d="{d}" fill="none" stroke="{colour}" stroke-width="{width:g}" '
            f'stroke-linejoin="round"{extra}/>'
        )

    def polygon(self, points: list[tuple[float, float]], fill: str, stroke: str = "none") -> None:
        """A closed shape."""
        corners = " ".join(f"{px(x)},{px(y)}" for x, y in points)
        self.parts.append(f'<polygon points="{corners}" fill="{fill}" stroke="{stroke}"/>')

    def rect(
        self, x: float, y: float, width: float, height: float, fill: str, radius: float = 0
    ) -> None:
        """A filled rectangle."""
        extra = f' rx="{px(radius)}"' if radius else ""
        self.parts.append(
            f'<rect x="{px(x)}" y="{px(y)}" width="{px(width)}" height="{px(height)}" '
            f'fill="{fill}"{extra}/>'
        )

    def dot(
        self, x: float, y: float, fill: str, edge: str = "#ffffff", radius: float = 4, tip: str = ""
    ) -> None:
        """A circle that says what it stands for when it is pointed at."""
        self._mark(f'circle cx="{px(x)}" cy="{px(y)}" r="{radius:g}"', fill, edge, tip)

    def diamond(
        self, x: float, y: float, fill: str, edge: str = "#ffffff", radius: float = 5, tip: str = ""
    ) -> None:
        """The dot's other shape."""
        corners = " ".join(
            f"{px(x + dx * radius)},{px(y + dy * radius)}"
            for dx, dy in ((0, -1), (1, 0), (0, 1), (-1, 0))
        )
        self._mark(f'polygon points="{corners}"', fill, edge, tip)

    def _mark(self, shape: str, fill: str, edge: str, tip: str) -> None:
        inside = f"<title>{escape(tip)}</title>" if tip else ""
        self.parts.append(
            f'<{shape} fill="{fill}" stroke="{edge}" stroke-width="1.5">{inside}'
            f"</{shape.split()[0]}>"
        )

    def render(self) -> str:
        """The file's text."""
        return "\n".join([*self.parts, "</svg>"]) + "\n"
