"""The figures that generation is to reach, from peers.json, beside what was measured."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .errors import ReportError
from .fields import Fields, read_json
from .generation import Generation, PeerRun, Work
from .markdown import table
from .numbers import microseconds, percent, rate, times
from .targets import FORMAT

COMPILED = "hf static+compile"
Measure = Callable[[Generation, PeerRun | None, Work, bool], float | None]


def _tokens_per_s(run: Generation, _hf: PeerRun | None, work: Work, graph: bool) -> float | None:
    fused = run.decoding(work, "fused", graph)
    return fused.tokens_per_s.p50 if fused else None


def over_baseline(run: Generation, _hf: PeerRun | None, work: Work, graph: bool) -> float | None:
    """How many times the fused variant is as fast as the baseline, both with or without a graph."""
    fused, baseline = (run.decoding(work, name, graph) for name in ("fused", "baseline"))
    return fused.tokens_per_s.p50 / baseline.tokens_per_s.p50 if fused and baseline else None


def _over_compiled(run: Generation, hf: PeerRun | None, work: Work, graph: bool) -> float | None:
    fused = run.decoding(work, "fused", graph)
    theirs = hf.measured(work).get(COMPILED) if hf else None
    return fused.tokens_per_s.p50 / theirs.p50 if fused and theirs else None


def prefill_over_baseline(run: Generation, work: Work) -> float | None:
    """The baseline's time of the prompt over that of the fused variant."""
    fused, baseline = (run.prefill(work, name) for name in ("fused", "baseline"))
    return baseline.ms.p50 / fused.ms.p50 if fused and baseline else None


def _floor_share(run: Generation, _hf: PeerRun | None, work: Work, graph: bool) -> float | None:
    fused = run.decoding(work, "fused", graph)
    return fused.floor_share if fused else None


def _host_us(run: Generation, _hf: PeerRun | None, work: Work, graph: bool) -> float | None:
    fused = run.decoding(work, "fused", graph)
    return fused.host_us / work.batch if fused and fused.host_us is not None else None


# What is measured, the figure in words, and how a value is written.
MEASURES: dict[str, tuple[Measure, str, Callable[[float | None], str]]] = {
    "tokens_per_s": (_tokens_per_s, "{:,.0f} tokens/s", rate),
    "over_baseline": (over_baseline, "{:g}x the baseline", times),
    "over_compiled": (_over_compiled, f"{{:g}}x {COMPILED}", times),
    "prefill_over_baseline": (
        lambda run, _hf, work, _graph: prefill_over_baseline(run, work),
        "prefill {:g}x the baseline",
        times,
    ),
    "floor_share": (_floor_share, "{:.0%} of the floor", percent),
    "host_us": (_host_us, "at most {:g} us of the host per token", microseconds),
}


# Of a Work, that a figure may be for.
FIELDS = {"model": str, "dtype": str, "batch": int, "prompt": int}


@dataclass(frozen=True)
class Figure:
    """Of the fused variant: on a GPU with a graph, on a CPU without."""

    device: str
    where: dict[str, str | int]  # which works it is for, by their fields
    measure: str
    limit: float
    upper: bool

    @property
    def text(self) -> str:
        """The figure in words."""
        return MEASURES[self.measure][1].format(self.limit).replace("%", " %")

    def value(self, run: Generation, hf: PeerRun | None) -> float | None:
        """The worst of all works that it is for; None if nothing was measured."""
        works = dict.fromkeys(
            [row.work for row in run.decodings] + [row.work for row in run.prefills]
        )
        values = [
            value
            for work in works
            if all(getattr(work, name) == wanted for name, wanted in self.where.items())
            and (value := MEASURES[self.measure][0](run, hf, work, self.device == "cuda"))
            is not None
        ]
        return (max if self.upper else min)(values, default=None)


def _figure(fields: Fields) -> Figure:
    measure = fields.get("measure", str)
    if measure not in MEASURES:
        raise ReportError(
            f"{fields.where}: measure: expected {' or '.join(MEASURES)}, got {measure}"
        )
    upper = "at_most" in fields.raw
    return Figure(
        device=fields.get("device", str),
        where={name: fields.get(name, kind) for name, kind in FIELDS.items() if name in fields.raw},
        measure=measure,
        limit=fields.positive("at_most" if upper else "at_least"),
        upper=upper,
    )


def load_figures(path: Path, device: dict[str, str]) -> list[Figure]:
    """Those for a device; GPUs other than the file's have none."""
    fields = read_json(path, FORMAT)
    kind = device.get("type", "")
    if kind == "cuda" and device.get("name") != fields.get("device", str):
        return []
    figures = [_figure(entry) for entry in fields.objects("generate", [])]
    return [figure for figure in figures if figure.device == kind]


def figures_table(run: Generation, hf: PeerRun | None, figures: list[Figure]) -> str:
    """Each figure beside what was measured."""
    lines, known, reached = [], 0, 0
    for figure in figures:
        value = figure.value(run, hf)
        mark = "not measured"
        if value is not None:
            met = value <= figure.limit if figure.upper else value >= figure.limit
            known, reached = known + 1, reached + met
            mark = "✓" if met else "✗"
        of = [str(figure.where.get(name, "all")) for name in FIELDS]
        lines.append([*of, figure.text, MEASURES[figure.measure][2](value), mark])
    if not lines:
        return "No targets are set for this device."
    header = ["model", "dtype", ">batch", ">prompt", "target", ">measured", "met"]
    if not known:
        return table(header, lines)
    return f"{reached} of {known} targets are met.\n\n{table(header, lines)}"
