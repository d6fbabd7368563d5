"""The ladder on 1024 x 8192: each named kernel, the default, ATen, and the floor."""

from .errors import ReportError
from .model import Bench, Row
from .numbers import bandwidth, microseconds
from .svg import AXIS, GRID, MUTED, TEXT, Drawing, Scale, ticks
from .targets import Peers

WIDTH, TOP, STEP, BAR = 860, 104, 30, 19
PANELS = {"float32": (92, 452), "bfloat16": (486, 846)}
ROOM = 104  # right of a bar, for its label
SHAPE = (1024, 8192)
STEPS = ("naive", "warp", "block", "cluster", "stream", "warpfuse", "aten", "floor")
NAMES = {"aten": "ATen"}
COLOURS = {"warpfuse": "#0969da", "aten": "#d1570a", "floor": "#afb8c1"}
NAMED = "#8bb8ec"
FAR = 6  # times the floor: a longer bar is cut, so that the others can be told apart


def ladder_plot(bench: Bench, _peers: Peers) -> str:
    """From the forward rows of 1024 x 8192."""
    rows = {row.key.dtype: row for row in bench.rows if _drawn(row)}
    if not rows:
        raise ReportError(f"{bench.path}: no forward row of 1024 x 8192")
    steps = [s for s in STEPS if s == "floor" or any(s in row.variants for row in rows.values())]
    bottom = TOP + STEP * len(steps)
    drawing = Drawing(
        WIDTH,
        bottom + 46,
        "Softmax of 1024 x 8192, forward: from the naive kernel to the floor",
        f"{bench.device_name}; us/call in a CUDA graph over rotating inputs; in brackets the "
        f"share of a large copy's {bandwidth(bench.copy_gb_per_s)}",
    )
    for i, step in enumerate(steps):
        drawing.text(
            PANELS["float32"][0] - 10,
            TOP + STEP * i + 19,
            NAMES.get(step, step),
            anchor="end",
            weight="bold" if step == "warpfuse" else "normal",
        )
    for dtype, (left, right) in PANELS.items():
        if dtype in rows:
            _panel(drawing, rows[dtype], steps, left, right, bottom)
    return drawing.render()


def _drawn(row: Row) -> bool:
    key = row.key
    return (
        key.operator == "softmax"
        and key.shape == SHAPE
        and row.direction == "forward"
        and key.dim == 1
        and key.mask == "none"
        and key.dtype in PANELS
    )


def _panel(
    drawing: Drawing, row: Row, steps: list[str], left: int, right: int, bottom: int
) -> None:
    times = {step: row.floor if step == "floor" else row.time(step) for step in steps}
    shown = [time for time in times.values() if time and time <= FAR * row.floor]
    x = Scale(0, max(shown), left, right - ROOM)
    drawing.text(left, TOP - 14, row.key.dtype, weight="bold", size=13)
    for tick in ticks(x.high):
        drawing.line(x(tick), TOP - 4, x(tick), bottom, GRID)
        drawing.text(x(tick), bottom + 18, f"{tick:g}", colour=MUTED, anchor="middle", size=11)
    drawing.text(x(x.high) + 14, bottom + 18, "us", colour=MUTED, size=11)
    drawing.line(x(row.floor), TOP - 4, x(row.floor), bottom, AXIS, 1.25, "3 3")
    for i, step in enumerate(steps):
        _bar(drawing, row, step, times[step], x, TOP + STEP * i + 5)
    drawing.line(left, TOP - 4, left, bottom, AXIS)


def _bar(drawing: Drawing, row: Row, step: str, time: float | None, x: Scale, y: float) -> None:
    if time is None:
        variant = row.variants.get(step)
        wrong = variant is not None and variant.status == "wrong"
        text = {
            None: "not measured",
            "unsupported": "does not take this shape",
            "wrong": "wrong result",
        }[variant.status if variant else None]
        drawing.text(x.start + 8, y + 14, text, colour="#cf222e" if wrong else MUTED, size=11)
        return
    end = x(min(time, x.high))
    drawing.rect(x.start, y, end - x.start, BAR, COLOURS.get(step, NAMED), 2)
    if time > x.high:  # a break in the bar
        at = x.start + (end - x.start) * 0.86
        drawing.polygon(
            [(at, y + BAR + 1), (at + 8, y - 1), (at + 15, y - 1), (at + 7, y + BAR + 1)], "#ffffff"
        )
    label = microseconds(time)
    if step != "floor":
        label += f" ({row.floor / time * 100:.0f} %"
        label += f", {tier})" if (tier := _tier(row, step)) else ")"
    drawing.text(
        end + 6, y + 14, label, colour=TEXT, weight="bold" if step == "warpfuse" else "normal"
    )


def _tier(row: Row, step: str) -> str:
    """Which tier the default picked."""
    launches = row.variants[step].launches if step == "warpfuse" else ()
    return launches[0].tier if launches else ""
