"""The plots of docs/images, from a GPU's run: share, ladder and roofline of softmax, and generation."""

import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .run import Bench, Generation, ReportError, Row, Work
from .serving import device_name
from .targets import Peers
from .text import bandwidth, microseconds, rate

matplotlib.use("svg")
# The same bytes from the same data: no random ids, and no date (write_plots). Text stays text.
matplotlib.rcParams.update(
    {"svg.hashsalt": "warpfuse", "svg.fonttype": "none", "font.size": 12, "axes.titlesize": 13,
     "legend.columnspacing": 1.2, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
     "grid.color": "#e4e8ec", "legend.frameon": False, "legend.fontsize": 11}
)  # fmt: skip
OURS, OTHER, ATEN, MUTED = "#0969da", "#8bb8ec", "#d1570a", "#8c959f"
DTYPES = ("float32", "bfloat16")


def titled(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontweight="bold")


def figure(title: str, subtitle: str, columns: int, height: float, sharey: bool = True) -> tuple[Figure, list[Axes]]:
    """An image of 860 pixels with panels side by side."""
    made = Figure(figsize=(8.6, height), layout="constrained")
    made.suptitle(f"{title}\n\n", x=0.01, ha="left", fontsize=14, fontweight="bold")
    made.text(0.01, 1 - 0.36 / height, subtitle, ha="left", va="top", fontsize=11, color="#57606a")
    return made, list(made.subplots(1, columns, sharey=sharey, squeeze=False)[0])


def bars(axes: Axes, title: str, names: list[str], values: list[float | None], labels: list[str], ours: set[str],
         most: float) -> None:  # fmt: skip
    """A horizontal bar per name; a longer one than `most` is cut, and its label says how long it is."""
    for at, (name, value, label) in enumerate(zip(names, values, labels, strict=True)):
        colour = OURS if name in ("warpfuse", "fused") else OTHER if name in ours else ATEN
        axes.barh(at, min(value or 0, most), color=MUTED if name == "floor" else colour, height=0.66)
        if (value or 0) > most:
            axes.text(most * 0.9, at, "//", color="white", va="center", fontweight="bold")
        axes.text(min(value or 0, most) + most * 0.02, at, label, va="center", fontsize=11)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, most * 1.55)
    titled(axes, title)
    axes.grid(axis="y", visible=False)
    if not axes.yaxis_inverted():
        axes.invert_yaxis()


def softmax_rows(rows: list[Row], dtypes: Iterable[str], *directions: str) -> list[Row]:
    """Plain softmax over the last dimension."""
    fits = lambda key: key.operator == "softmax" and key.dim == len(key.shape) - 1 and key.dtype in dtypes
    return [row for row in rows if fits(row.key) and row.direction in directions]


def share_plot(bench: Bench) -> Figure:
    """The floor's share of the time over the length of a row, ours and ATen's."""
    rows = softmax_rows(bench.preset("sweep", "softmax"), DTYPES, "forward")
    if len({row.key.shape[-1] for row in rows}) < 2:
        raise ReportError(f"{bench.path}: no forward rows of the preset sweep, or of one length alone")
    made, panels = figure(
        "Softmax forward: share of the memory's speed over the row length",
        f"{bench.device_name}; 100 % is the bandwidth of a large copy in the same run, {bandwidth(bench.copy_gb_per_s)}",
        2,
        4.6,
    )
    for axes, even in zip(panels, (True, False), strict=True):
        for name, colour in (("aten", ATEN), ("warpfuse", OURS)):
            for dtype, style in zip(DTYPES, ("o-", "o--"), strict=True):
                points = sorted(
                    (row.key.shape[-1], share * 100)
                    for row in rows
                    if row.key.dtype == dtype and (row.key.shape[-1] % 8 == 0) == even and (share := row.share(name))
                )
                face = colour if dtype == "float32" else "white"
                label = f"{'ATen' if name == 'aten' else name}, {dtype}"
                axes.plot(*zip(*points, strict=True), style, color=colour, markerfacecolor=face, markersize=5, label=label)
        titled(axes, "multiples of 8 columns" if even else "other row lengths")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda x, _at: f"{x / 1024:g}K" if x >= 1024 else f"{x:g}")
        axes.yaxis.set_major_formatter("{x:g} %")
        axes.set(ylim=(0, 108), xlabel="columns")
    made.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return made


def ladder_plot(bench: Bench) -> Figure:
    """1024 x 8192: each algorithm, the default, ATen, and the floor."""
    rows = [row for row in softmax_rows(bench.rows, DTYPES, "forward") if row.key.shape == (1024, 8192)]
    if not rows:
        raise ReportError(f"{bench.path}: no forward row of 1024 x 8192")
    steps = ["naive", "warp", "block", "cluster", "stream", "warpfuse", "ATen", "floor"]
    made, panels = figure(
        "Softmax of 1024 x 8192, forward: from the naive kernel to the floor",
        f"{bench.device_name}; us per call in a CUDA graph over rotating inputs, and the share of a large copy's "
        f"{bandwidth(bench.copy_gb_per_s)}",
        len(rows),
        4.2,
    )
    for axes, row in zip(panels, rows, strict=True):
        times = [row.floor if step == "floor" else row.time(step.lower()) for step in steps]
        labels = [f"{microseconds(time)}" + f" ({row.floor / time:.0%})" * (step != "floor") if time else "-"
                  for step, time in zip(steps, times, strict=True)]  # fmt: skip
        most = max(time for time in times if time and time <= 6 * row.floor)  # the naive bar is cut
        bars(axes, row.key.dtype, steps, times, labels, set(steps) - {"ATen"}, most)
        axes.axvline(row.floor, color=MUTED, linestyle=":")
        axes.set_xlabel("us")
    return made


# The least that the formula needs per element. Forward: a maximum, a subtraction, the scale to base 2, an
# exponential, an addition, the final product; backward: two for the dot product, a subtraction, a product.
OPERATIONS = {"forward": 6, "backward": 4}
LEAST_BYTES = 33e6  # of a row that its bandwidth bounds, and not the start of a kernel


def roofline_plot(bench: Bench, peers: Peers) -> Figure:
    """Bandwidth over arithmetic intensity, below the roofs of memory and of the pipes."""
    colours = {"float32": OURS, "float16": "#1a7f37", "bfloat16": "#8250df"}
    rows = [row for row in softmax_rows(bench.preset("table", "softmax"), colours, *OPERATIONS) if row.least_bytes >= LEAST_BYTES]
    if not rows:
        raise ReportError(f"{bench.path}: no softmax rows of the preset table")
    memory = bench.copy_gb_per_s / 1e3
    made, (axes,) = figure(
        "Roofline of softmax and its backward pass",
        f"{bench.device_name}; least bytes over time; a model of 6 operations per element, backward 4",
        1,
        4.8,
    )
    for name in ("aten", "warpfuse"):
        for row in rows:
            intensity = OPERATIONS[row.direction] * math.prod(row.key.shape) / row.least_bytes
            colour = ATEN if name == "aten" else colours[row.key.dtype]
            if time := row.time(name):
                marker = "o" if row.direction == "forward" else "D"
                face = "white" if name == "aten" else colour
                axes.plot(intensity, row.least_bytes / time / 1e6, marker, color=colour, markerfacecolor=face)
    axes.axhline(memory, color="#1f2328")
    axes.text(1.7, memory * 1.02, f"a large copy: {memory:.2f} TB/s", fontsize=11)
    if peers.same:
        clocks = int(bench.device.get("multiprocessors", 0)) * peers.processor["clock_mhz"] / 1e6
        special, fp32 = (peers.processor[name] * clocks for name in ("special_per_clock", "fp32_per_clock"))
        for limit, text, side in ((special * OPERATIONS["forward"], "exponentials ", "right"), (fp32, " fp32", "left")):
            x = [0.14 * (40 / 0.14) ** (i / 200) for i in range(201)]
            axes.plot(x, [limit / at for at in x], "--", color=MUTED)
            axes.text(limit / (memory * 0.6), memory * 0.6, text, ha=side)
    for dtype, colour in (colours | {"ATen": ATEN}).items():
        if dtype in ("ATen", *(row.key.dtype for row in rows)):
            axes.plot([], [], "s", color=colour, markerfacecolor="white" if dtype == "ATen" else colour, label=dtype)
    for marker, direction in (("o", "forward"), ("D", "backward")):
        axes.plot([], [], marker, color=MUTED, label=direction)
    made.legend(loc="outside lower center", ncols=5)
    axes.set(xscale="log", xlim=(0.14, 40), ylim=(0, memory * 1.14), xlabel="operations per byte", ylabel="TB/s")
    axes.xaxis.set_major_formatter("{x:g}")
    return made


def generation_plot(run: Generation) -> Figure:
    """Tokens per second of distilgpt2 at batch 1: ours with a graph and without, and Hugging Face's."""
    ours = {"steps": True, "fused": True, "baseline": True, "sdpa": True, "fused, no graph": False}
    panels: dict[str, dict[str, float]] = {}
    for dtype in ("float16", "float32"):
        work = Work("distilgpt2", dtype, 1, 32, "")
        found = {name: run.find(work, name.split(",")[0], graph) for name, graph in ours.items()} | run.theirs(work)
        if rates := {name: row.p50 for name, row in found.items() if row and row.p50}:
            panels[dtype] = rates
    if not panels:
        raise ReportError(f"{run.path}: no distilgpt2 at batch 1 with a prompt of 32 tokens")
    made, axes = figure(
        "distilgpt2, batch 1: tokens per second",
        f"{run.device_name}; greedy, prompt of 32 tokens; ours with a CUDA graph per step unless "
        "it says otherwise",
        len(panels),
        4.2,
    )
    names = list(dict.fromkeys(name for rates in panels.values() for name in rates))
    for panel, (dtype, rates) in zip(axes, panels.items(), strict=True):
        values = [rates.get(name) for name in names]
        most = max(max(rates.values()) for rates in panels.values())
        bars(panel, dtype, names, values, [rate(value) if value else "not measured" for value in values], set(ours), most)
    return made


def serve_plot(run: dict[str, Any]) -> Figure:
    """The server's tokens per second and latency over the number of clients."""
    made, (throughput, latency) = figure(
        "warpfuse serve: throughput and latency over clients",
        f"{device_name(run)}; {run['model']['model']} {run['model']['dtype']}, prompt {run['prompt']}, {run['tokens']} tokens; "
        "rows of the server are as many as clients",
        2,
        4.2,
        sharey=False,
    )
    whole = [row for row in run["rows"] if not row["stream"]]
    clients = [row["clients"] for row in whole]
    throughput.plot(clients, [row["generate_tokens_per_s"] for row in whole], "o--", color=MUTED, label="generate")
    for stream, colour, label in ((False, OURS, "in one piece"), (True, OTHER, "streamed")):
        rows = [row for row in run["rows"] if row["stream"] == stream]
        throughput.plot(clients, [row["tokens_per_s"] for row in rows], "o-", color=colour, label=label)
        latency.plot(clients, [row["latency_ms"]["p50"] for row in rows], "o-", color=colour, label=f"{label}, p50")
        latency.plot(clients, [row["latency_ms"]["p99"] for row in rows], "o:", color=colour, label=f"{label}, p99")
    for axes, title, unit in ((throughput, "throughput", "tokens/s"), (latency, "an answer", "ms")):
        titled(axes, title)
        axes.set(xscale="log", yscale="log", xlabel="clients", ylabel=unit)
        axes.set_xticks(clients, [str(count) for count in clients], minor=False)
        axes.minorticks_off()
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.legend()
    return made


def save(plot: Figure, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    plot.savefig(folder / f"{name}.svg", metadata={"Date": None})


def write_plots(folder: Path, bench: Bench, peers: Peers, run: Generation | None, allow_partial: bool) -> None:
    """Writes the images; those that a partial run has no rows for stay as they are."""
    plots = {"share": (share_plot, bench), "ladder": (ladder_plot, bench), "roofline": (roofline_plot, bench, peers)}
    if run:
        plots["generate"] = (generation_plot, run)
    for name, (plot, *of) in plots.items():
        try:
            save(plot(*of), folder, name)
        except ReportError as error:
            if not allow_partial:
                raise
            print(f"report.py: {name}.svg is left as it is: {error}", file=sys.stderr)
