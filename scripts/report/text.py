"""Numbers as text, the same way in all tables and plots, and Markdown tables."""

import math
from collections.abc import Callable, Iterable

from .run import ReportError

NOTHING = "–"


def cut(value: float, places: int) -> float:
    """Rounded down; the small term makes up for binary fractions such as 0.29 * 100."""
    scale: int = 10**places
    return math.floor(value * scale + 1e-6) / scale


def known(text: Callable[[float], str]) -> Callable[[float | None], str]:
    """The same for a value that may be missing."""
    return lambda value: NOTHING if value is None else text(value)


@known
def microseconds(value: float) -> str:
    """Three digits, or all that stand before the point; milliseconds look the same."""
    return f"{value:,.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


# What a target is set for is cut, not rounded, so that a target just missed does not look met.
rate = known(lambda value: f"{cut(value, 0):,.0f}" if value >= 100 else f"{cut(value, 1):.1f}")
percent = known(lambda value: f"{cut(value * 100, 1):.1f} %")
times = known(lambda value: f"{cut(value, 2):.2f}x")
digits = known(lambda value: f"{value:.3g}")
megabytes = known(lambda value: f"{value / 1e6:,.{0 if value >= 99.95e6 else 1 if value >= 1e6 else 3}f}")
error = known(lambda value: f"{value:.1e}")


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
    lines = [[name.lstrip(">") for name in header]]
    lines += [[cell.replace("|", "/").replace("\n", " ") for cell in row] for row in rows]
    first, *others = (f"| {' | '.join(cells)} |" for cells in lines)
    marks = "|".join("--:" if name.startswith(">") else "---" for name in header)
    return "\n".join([first, f"|{marks}|", *others])


def known_table(header: list[str], rows: list[list[str]]) -> str:
    """A table whose columns without any value are left out; no table without rows."""
    columns = zip(header, *rows, strict=True)
    kept = [column for column in columns if "".join(column[1:]).replace("<br>", "").replace(NOTHING, "").strip()]
    first, *others = zip(*kept, strict=True) if rows else [()]
    return table(first, others) if rows else ""


def with_block(page: str, text: str) -> str:
    """The page with the text in place of what stands between its first and its last line."""
    begin, end = text.split("\n", 1)[0], text.rsplit("\n", 1)[-1]
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ReportError(f"{begin} or {end} is missing on the page")
    return before + text + after
