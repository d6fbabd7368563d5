"""Numbers as text, the same way in tables and plots."""

import math

NOTHING = "–"


def microseconds(value: float | None) -> str:
    """Three digits, or all that stand before the point."""
    if value is None:
        return NOTHING
    for limit, places in ((9.995, 2), (99.95, 1)):
        if value < limit:
            return f"{value:.{places}f}"
    return f"{value:,.0f}"


def milliseconds(value: float | None) -> str:
    """The same digits."""
    return microseconds(value)


def rate(value: float | None) -> str:
    """Tokens a second; cut, as a ratio is."""
    if value is None:
        return NOTHING
    return f"{cut(value, 0):,.0f}" if value >= 100 else f"{cut(value, 1):.1f}"


def percent(value: float | None) -> str:
    """Cut, not rounded, so that a figure just missed does not look reached."""
    return NOTHING if value is None else f"{cut(value * 100, 1):.1f} %"


def times(value: float | None) -> str:
    """A ratio, cut as a percentage is."""
    return NOTHING if value is None else f"{cut(value, 2):.2f}x"


def cut(value: float, places: int) -> float:
    """Rounded down; the small term makes up for binary fractions such as 0.29 * 100."""
    scale: int = 10**places
    return math.floor(value * scale + 1e-6) / scale


def megabytes(value: float | None) -> str:
    """Bytes in millions."""
    if value is None:
        return NOTHING
    return f"{value / 1e6:,.{0 if value >= 99.95e6 else 1 if value >= 1e6 else 3}f}"


def bandwidth(gb_per_s: float) -> str:
    """GB/s, or TB/s from 1000 on."""
    return f"{gb_per_s / 1000:.2f} TB/s" if gb_per_s >= 1000 else f"{gb_per_s:.1f} GB/s"


def columns(count: float) -> str:
    """A row length on an axis: 512, 8K, 1M."""
    for unit, name in ((1 << 20, "M"), (1 << 10, "K")):
        if count >= unit:
            return f"{count / unit:g}{name}"
    return f"{count:g}"
