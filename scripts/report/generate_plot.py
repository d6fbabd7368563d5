"""Tokens a second of distilgpt2 at batch 1: ours with a graph and without, and Hugging Face's."""

from .generation import Generation, PeerRun, Work
from .numbers import rate
from .svg import AXIS, GRID, MUTED, TEXT, Drawing, Scale, ticks

WIDTH, TOP, STEP, BAR = 860, 104, 30, 19
PANELS = {"float16": (150, 484), "float32": (512, 846)}
ROOM = 66  # right of a bar, for its label
MODEL, BATCH, PROMPT = "distilgpt2", 1, 32
OURS = {
    "fused": ("fused", True),
    "baseline": ("baseline", True),
    "sdpa": ("sdpa", True),
    "fused, no graph": ("fused", False),
}
STRONG, OWN, THEIRS = "#0969da", "#8bb8ec", "#d1570a"


def _work(dtype: str) -> Work:
    return Work(MODEL, dtype, BATCH, PROMPT)


def _rates(run: Generation, hf: PeerRun | None, dtype: str) -> dict[str, float]:
    """By the bars' names."""
    work = _work(dtype)
    rates = {
        name: row.tokens_per_s.p50
        for name, (variant, graph) in OURS.items()
        if (row := run.decoding(work, variant, graph))
    }
    theirs = hf.measured(work) if hf else {}
    return rates | {name: found.p50 for name, found in theirs.items()}


def drawn(run: Generation) -> bool:
    """Whether there is anything to draw; a CPU's run has no picture."""
    return run.source.device.get("type") == "cuda" and any(
        _rates(run, None, dtype) for dtype in PANELS
    )


def generate_plot(run: Generation, hf: PeerRun | None) -> str:
    """A panel for each dtype, with the same bars."""
    panels = {dtype: rates for dtype in PANELS if (rates := _rates(run, hf, dtype))}
    names = list(dict.fromkeys(name for rates in panels.values() for name in rates))
    bottom = TOP + STEP * len(names)
    drawing = Drawing(
        WIDTH,
        bottom + 46,
        f"{MODEL}, batch {BATCH}: tokens a second",
        f"{run.source.device.get('name', 'unknown')}; greedy, prompt of {PROMPT} tokens; ours "
        "with a CUDA graph of the step unless it says otherwise; hf: Hugging Face",
    )
    for i, name in enumerate(names):
        weight = "bold" if name == "fused" else "normal"
        drawing.text(
            PANELS["float16"][0] - 10, TOP + STEP * i + 19, name, anchor="end", weight=weight
        )
    highest = max(max(rates.values()) for rates in panels.values())
    for dtype, rates in panels.items():
        left, right = PANELS[dtype]
        _panel(drawing, dtype, rates, names, Scale(0, highest, left, right - ROOM), bottom)
    return drawing.render()


def _panel(
    drawing: Drawing,
    dtype: str,
    rates: dict[str, float],
    names: list[str],
    x: Scale,
    bottom: int,
) -> None:
    drawing.text(x.start, TOP - 14, dtype, weight="bold", size=13)
    for tick in ticks(x.high):
        drawing.line(x(tick), TOP - 4, x(tick), bottom, GRID)
        drawing.text(x(tick), bottom + 18, f"{tick:,g}", colour=MUTED, anchor="middle", size=11)
    for i, name in enumerate(names):
        y = TOP + STEP * i + 5
        if name not in rates:
            drawing.text(x.start + 8, y + 14, "not measured", colour=MUTED, size=11)
            continue
        colour = STRONG if name == "fused" else OWN if name in OURS else THEIRS
        drawing.rect(x.start, y, x(rates[name]) - x.start, BAR, colour, 2)
        weight = "bold" if name == "fused" else "normal"
        drawing.text(x(rates[name]) + 6, y + 14, rate(rates[name]), colour=TEXT, weight=weight)
    drawing.line(x.start, TOP - 4, x.start, bottom, AXIS)
