"""Share of the large copy's bandwidth over the length of a row, ours and ATen's."""

from .errors import ReportError
from .model import Bench, Row
from .numbers import bandwidth, columns, microseconds, percent
from .svg import AXIS, MUTED, Drawing, Scale
from .targets import Peers

WIDTH, HEIGHT = 860, 440
LEFT, RIGHT, TOP, BOTTOM = 66, 840, 124, 380
GAP, INSET = 22, 12  # between panels, and from a panel's edge to its first point
COLOURS = {"warpfuse": "#0969da", "aten": "#d1570a"}
NAMES = {"warpfuse": "warpfuse", "aten": "ATen"}
DTYPES = {"float32": "", "bfloat16": "6 4"}  # dash patterns
EVEN = 8  # rows of a multiple of it all start at aligned addresses
PANELS = (f"row lengths that are multiples of {EVEN}", "other row lengths")
TICK_GAP = 44  # pixels that the label of a row length takes


def share_plot(bench: Bench, _peers: Peers) -> str:
    """From the rows of the preset sweep."""
    rows = sorted((row for row in bench.preset("sweep") if _drawn(row)), key=_length)
    if len({_length(row) for row in rows}) < 2:
        raise ReportError(
            f"{bench.path}: no forward rows of the preset sweep, or of one length alone"
        )
    highest = max((row.share(name) or 0 for name in COLOURS for row in rows), default=0)
    y = Scale(0, max(1.0, highest * 1.02), BOTTOM, TOP)
    drawing = Drawing(
        WIDTH,
        HEIGHT,
        "Softmax forward: share of the memory's speed over the row length",
        f"{bench.device_name}; 100 % is the bandwidth of a large copy in the same run, "
        f"{bandwidth(bench.copy_gb_per_s)}",
    )
    _legend(drawing)
    groups = [[row for row in rows if (_length(row) % EVEN == 0) is even] for even in (True, False)]
    shown = [(title, group) for title, group in zip(PANELS, groups, strict=True) if group]
    width = (RIGHT - LEFT - GAP * (len(shown) - 1)) / len(shown)
    for i, (title, group) in enumerate(shown):
        left = LEFT + i * (width + GAP)
        x = Scale(_length(rows[0]), _length(rows[-1]), left + INSET, left + width - INSET, log=True)
        drawing.text(left, TOP - 12, title, weight="bold")
        _axes(drawing, x, y, labels=i == 0)
        _lines(drawing, x, y, group)
    drawing.text((LEFT + RIGHT) / 2, BOTTOM + 42, "columns (elements of a row)", anchor="middle")
    return drawing.render()


def _drawn(row: Row) -> bool:
    key = row.key
    return (
        key.operator == "softmax"
        and row.direction == "forward"
        and key.mask == "none"
        and key.dim == len(key.shape) - 1
        and key.dtype in DTYPES
    )


def _length(row: Row) -> int:
    return row.key.shape[-1]


def _lines(drawing: Drawing, x: Scale, y: Scale, rows: list[Row]) -> None:
    for name in ("aten", "warpfuse"):  # ours on top
        for dtype in DTYPES:
            points = [
                (x(_length(row)), y(share), row)
                for row in rows
                if row.key.dtype == dtype and (share := row.share(name))
            ]
            if len(points) > 1:
                drawing.path([point[:2] for point in points], COLOURS[name], 2, DTYPES[dtype])
            for at, height, row in points:
                tip = f"{NAMES[name]} {dtype}, {row.key.label}: {microseconds(row.time(name))} us"
                _mark(drawing, name, dtype, at, height, f"{tip}, {percent(row.share(name))}")


def _mark(drawing: Drawing, name: str, dtype: str, x: float, y: float, tip: str = "") -> None:
    colour, solid = COLOURS[name], dtype == "float32"
    drawing.dot(x, y, colour if solid else "#ffffff", "#ffffff" if solid else colour, 3.75, tip)


def _axes(drawing: Drawing, x: Scale, y: Scale, labels: bool) -> None:
    left, right = x.start - INSET, x.end + INSET
    for tenths in range(0, 11, 2):
        height = y(tenths / 10)
        drawing.line(left, height, right, height, *((AXIS, 1) if tenths in (0, 10) else ()))
        if labels:
            drawing.text(left - 8, height + 4, f"{tenths * 10} %", colour=MUTED, anchor="end")
    # Powers of two within the range, as many as there is room for.
    powers = [1 << k for k in range(40) if x.low <= 1 << k <= x.high]
    step = 1
    while len(powers) > 1 and (x(powers[1]) - x(powers[0])) * step < TICK_GAP:
        step += 1
    for power in powers[::step]:
        drawing.line(x(power), BOTTOM, x(power), BOTTOM + 5, AXIS)
        drawing.text(x(power), BOTTOM + 20, columns(power), colour=MUTED, anchor="middle")


def _legend(drawing: Drawing) -> None:
    at = LEFT
    for name in COLOURS:
        for dtype, dash in DTYPES.items():
            drawing.line(at, 78, at + 34, 78, COLOURS[name], 2, dash)
            _mark(drawing, name, dtype, at + 17, 78)
            drawing.text(at + 42, 82, f"{NAMES[name]}, {dtype}")
            at += 180
