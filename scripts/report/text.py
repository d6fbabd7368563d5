"""Numbers as text, the same way in all tables and plots, and Markdown tables."""

import math
from collections.abc import Iterable

from .run import ReportError

NOTHING = "–"


def cut(value: float, places: int) -> float:
    """Rounded down; the small term makes up for binary fractions such as 0.29 * 100."""
    scale: int = 10**places
    return math.floor(value * scale + 1e-6) / scale


def microseconds(value: float | None) -> str:
    """Three digits, or all that stand before the point; milliseconds look the same."""
    if value is None:
        return NOTHING
    for limit, places in ((9.995, 2), (99.95, 1)):
        if value < limit:
            return f"{value:.{places}f}"
    return f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Tokens per second; cut, as a ratio is."""
    if value is None:
        return NOTHING
    return f"{cut(value, 0):,.0f}" if value >= 100 else f"{cut(value, 1):.1f}"


def percent(value: float | None) -> str:
    """Cut, not rounded, so that a target just missed does not look met."""
    return NOTHING if value is None else f"{cut(value * 100, 1):.1f} %"


def times(value: float | None) -> str:
    """A ratio, cut as a percentage is."""
    return NOTHING if value is None else f"{cut(value, 2):.2f}x"


def digits(value: float | None) -> str:
    """Three digits."""
    return NOTHING if value is None else f"{value:.3g}"


def megabytes(value: float | None) -> str:
    """Bytes in millions."""
    if value is None:
        return NOTHING
    return f"{value / 1e6:,.{0 if value >= 99.95e6 else 1 if value >= 1e6 else 3}f}"


def bandwidth(gb_per_s: float) -> str:
    """GB/s, or TB/s from 1000 on."""
    return f"{gb_per_s / 1000:.2f} TB/s" if gb_per_s >= 1000 else f"{gb_per_s:.1f} GB/s"


def amount(count: float) -> str:
    """Bytes in powers of two."""
    for size, name in ((1 << 30, "GiB"), (1 << 20, "MiB")):
        if count >= size:
            return f"{count / size:.4g} {name}"
    return f"{count:.0f} bytes"


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    """A table; numbers and their headers are aligned to the right by the marker `>`."""
    lines = [
        "| " + " | ".join(name.lstrip(">") for name in header) + " |",
        "|" + "|".join("--:" if name.startswith(">") else "---" for name in header) + "|",
    ]
    for row in rows:
        cells = (cell.replace("|", "/").replace("\n", " ") for cell in row)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def known_table(header: list[str], rows: list[list[str]]) -> str:
    """A table whose columns without any value are left out; no table without rows."""
    keep = [
        i
        for i in range(len(header))
        if any(row[i].replace("<br>", "").replace(NOTHING, "").strip() for row in rows)
    ]
    picked = [[row[i] for i in keep] for row in rows]
    return table([header[i] for i in keep], picked) if rows else ""


def with_block(page: str, text: str) -> str:
    """The page with the text in place of what stands between its first and its last line."""
    begin, end = text.split("\n", 1)[0], text.rsplit("\n", 1)[-1]
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ReportError(f"{begin} or {end} is missing on the page")
    return before + text + after
