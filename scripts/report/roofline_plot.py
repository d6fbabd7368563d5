"""A roofline: bandwidth over arithmetic intensity, below the roofs of memory and of the pipes.

The operations of an element are a model, the least that the formula needs: forward a maximum, a
subtraction, the scale to base 2, an exponential, an addition and the final product; backward two
for the dot product, a subtraction and a product. What a kernel spends on conversions, addresses
and shuffles is not counted.
"""

from .errors import ReportError
from .model import Bench, Row, elements
from .numbers import microseconds, percent
from .svg import AXIS, MUTED, Drawing, Scale
from .targets import Peers

WIDTH, HEIGHT = 860, 446
LEFT, RIGHT, TOP, BOTTOM = 66, 836, 96, 388
OPERATIONS = {"forward": 6, "backward": 4}
COLOURS = {"float32": "#0969da", "float16": "#1a7f37", "bfloat16": "#8250df"}
ATEN = "#d1570a"
INTENSITIES = (0.14, 40)  # the ends of the axis, operations a byte
LEAST_BYTES = 33e6  # of a work that its bandwidth bounds, and not the start of a kernel
SLOW = 0.8  # of the roof: the slowest point of a group below that is named


def roofline_plot(bench: Bench, peers: Peers) -> str:
    """From the softmax rows of the table, whose elements are all computed."""
    rows = [row for row in bench.preset("table") if _drawn(row)]
    if not rows:
        raise ReportError(f"{bench.path}: no softmax rows of the preset table")
    memory = bench.copy_gb_per_s / 1000
    x = Scale(*INTENSITIES, LEFT, RIGHT, log=True)
    y = Scale(0, memory * 1.14, BOTTOM, TOP)
    drawing = Drawing(
        WIDTH,
        HEIGHT,
        "Roofline of softmax and its backward pass",
        f"{bench.device_name}; least bytes over time; operations an element by a model: forward "
        "5 fp32 and 1 exponential, backward 4 fp32",
    )
    _axes(drawing, x, y, memory)
    _roofs(drawing, x, y, memory, bench, peers)
    for name in ("aten", "warpfuse"):
        for row in rows:
            _point(drawing, x, y, row, name)
    _name_slowest(drawing, x, y, rows, memory)
    _legend(drawing, rows)
    return drawing.render()


def _drawn(row: Row) -> bool:
    return (
        row.key.operator == "softmax"
        and row.key.dtype in COLOURS
        and row.least_bytes >= LEAST_BYTES
    )


def intensity(row: Row) -> float:
    """Operations a byte, of the least bytes."""
    return OPERATIONS[row.direction] * elements(row) / row.least_bytes


def speed(row: Row, name: str) -> float | None:
    """TB/s of the least bytes."""
    time = row.time(name)
    return row.least_bytes / time / 1e6 if time else None


def _axes(drawing: Drawing, x: Scale, y: Scale, memory: float) -> None:
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2) if memory / step <= 8)
    for i in range(int(y.high / step) + 1):
        drawing.line(LEFT, y(i * step), RIGHT, y(i * step), *((AXIS, 1) if i == 0 else ()))
        drawing.text(LEFT - 8, y(i * step) + 4, f"{i * step:g}", colour=MUTED, anchor="end")
    drawing.text(22, (TOP + BOTTOM) / 2, "TB/s", anchor="middle", turn=-90)
    for tick in (0.25, 0.5, 1, 2, 4, 8, 16, 32):
        drawing.line(x(tick), TOP, x(tick), BOTTOM)
        drawing.text(x(tick), BOTTOM + 18, f"{tick:g}", colour=MUTED, anchor="middle")
    drawing.text((LEFT + RIGHT) / 2, BOTTOM + 38, "operations a byte", anchor="middle")


def _roofs(drawing: Drawing, x: Scale, y: Scale, memory: float, bench: Bench, peers: Peers) -> None:
    """The copy's bandwidth, and for a known processor what its pipes can do."""
    drawing.line(LEFT, y(memory), RIGHT, y(memory), "#1f2328", 2)
    drawing.text(LEFT + 6, y(memory) - 7, f"memory: a large copy, {memory:.2f} TB/s", weight="bold")
    if bench.device_name != peers.device:
        return
    pipes = peers.processor
    clocks = int(bench.device.get("multiprocessors", 0)) * pipes.clock_mhz * 1e6
    roofs = (
        (
            f"exponentials, forward: {pipes.special_per_clock} a clock and SM",
            pipes.special_per_clock * OPERATIONS["forward"],
            "end",
            -14,
        ),
        (f"fp32: {pipes.fp32_per_clock} a clock and SM", pipes.fp32_per_clock, "start", 14),
    )
    for name, per_clock, anchor, shift in roofs:
        limit = per_clock * clocks / 1e12  # operations a second, in units of 10^12
        if not limit:
            continue
        first = max(limit / y.high, x.low)
        values = [first * (x.high / first) ** (i / 48) for i in range(49)]
        drawing.path([(x(v), y(limit / v)) for v in values], MUTED, 1.75, "7 4")
        at = limit / (memory * (0.3 if anchor == "end" else 0.75))
        drawing.text(x(at) + shift, y(limit / at) + 4, name, colour=MUTED, anchor=anchor)


def _point(drawing: Drawing, x: Scale, y: Scale, row: Row, name: str) -> None:
    found = speed(row, name)
    if found is None:
        return
    tip = (
        f"{'ATen' if name == 'aten' else name} {row.direction}, {row.key.label} {row.key.dtype}: "
        f"{microseconds(row.time(name))} us, {percent(row.share(name))}"
    )
    draw = drawing.dot if row.direction == "forward" else drawing.diamond
    fill, stroke = ("#ffffff", ATEN) if name == "aten" else (COLOURS[row.key.dtype], "#ffffff")
    draw(x(intensity(row)), y(found), fill, stroke, tip=tip)


def _name_slowest(drawing: Drawing, x: Scale, y: Scale, rows: list[Row], memory: float) -> None:
    """Ours with the least bandwidth, of each dtype and direction."""
    slowest: dict[tuple[str, str], tuple[float, Row]] = {}
    for row in rows:
        group, found = (row.key.dtype, row.direction), speed(row, "warpfuse")
        if found and (group not in slowest or found < slowest[group][0]):
            slowest[group] = (found, row)
    for found, row in slowest.values():
        if found < SLOW * memory:
            forward = row.direction == "forward"
            drawing.text(
                x(intensity(row)) + (9 if forward else -9),
                y(found) + 4,
                row.key.label,
                size=11,
                colour=COLOURS[row.key.dtype],
                anchor="start" if forward else "end",
            )


def _legend(drawing: Drawing, rows: list[Row]) -> None:
    at = LEFT
    for dtype, colour in COLOURS.items():
        if any(row.key.dtype == dtype for row in rows):
            drawing.rect(at, 70, 12, 12, colour, 2)
            drawing.text(at + 18, 80, f"warpfuse {dtype}")
            at += 145
    drawing.rect(at, 70, 12, 12, ATEN, 2)
    drawing.rect(at + 2, 72, 8, 8, "#ffffff", 1)
    drawing.text(at + 18, 80, "ATen")
    at += 80
    drawing.dot(at, 76, MUTED)
    drawing.text(at + 10, 80, "forward")
    drawing.diamond(at + 86, 76, MUTED)
    drawing.text(at + 96, 80, "backward")
