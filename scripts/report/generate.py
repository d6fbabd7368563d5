"""The blocks about generation: speed beside Hugging Face's, steps, prompts, and accuracy."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from .generate_figures import Figure, figures_table, over_baseline, prefill_over_baseline
from .generate_plot import drawn
from .generation import Decoding, Generation, Peer, PeerRun, Source, Spread, Work
from .markdown import known_table, table
from .numbers import NOTHING, bandwidth, megabytes, microseconds, milliseconds, percent, rate, times

VARIANTS = ("baseline", "fused", "sdpa")
IMAGE = "![tokens a second of distilgpt2, batch 1](../images/generate.svg)"


@dataclass(frozen=True)
class Story:
    """A run of ours, the peers beside it if they were run, and the figures to reach."""

    run: Generation
    hf: PeerRun | None
    figures: list[Figure]


def _spread(found: Spread | None, text: Callable[[float | None], str]) -> str:
    """The median, and in brackets the least and the most."""
    return f"{text(found.p50)} ({text(found.least)}–{text(found.most)})" if found else NOTHING


def _works(rows: Iterable[Decoding]) -> list[Work]:
    return list(dict.fromkeys(row.work for row in rows))


def _of(work: Work) -> list[str]:
    return [work.model, work.dtype, str(work.batch), work.prompt_name]


OF = ["model", "dtype", ">batch", ">prompt"]


def setup_block(story: Story) -> str:
    """When, on what, and how."""
    run, rows = story.run, []
    rows += _source_rows(run.source)
    rows.append(["bandwidth of reads", bandwidth(run.read_gb_per_s)])
    if run.prompts:
        rows.append(["prompts", Path(run.prompts).name])
    if story.hf:
        rows += [[f"Hugging Face: {name}", text] for name, text in _source_rows(story.hf.source)]
        ways = {peer.name: peer.how for peer in story.hf.peers if peer.how}
        rows += [[name, text] for name, text in ways.items()]
    return table(["", ""], rows)


def _source_rows(source: Source) -> list[list[str]]:
    versions = ", ".join(f"{name} {value}" for name, value in source.versions.items())
    rows = [["date", source.date], ["device", source.device.get("name", "unknown")]]
    rows.append(["versions", versions])
    rows += [[f"timing: {name}", text] for name, text in source.timing.items()]
    if source.command:
        rows.append(["command", f"`{source.command}`"])
    rows.append(["data", f"[{source.path.name}](./{source.path.name})"])
    return rows


def figures_block(story: Story) -> str:
    """The figures to reach."""
    return figures_table(story.run, story.hf, story.figures)


def speed_block(story: Story) -> str:
    """Tokens a second: ours with graphs where there are any, and Hugging Face's."""
    run, hf = story.run, story.hf
    names = list(dict.fromkeys(peer.name for peer in hf.peers)) if hf else []
    lines = [_speed_line(run, hf, work, names) for work in _works(run.decodings)]
    header = [*OF, *(f">{name}" for name in VARIANTS), ">fused, no graph"]
    header += [*(f">{name}" for name in names), ">fused / baseline", "fused / fastest HF"]
    parts = [IMAGE] if drawn(run) else []
    parts.append(known_table(header, lines))
    missing = [peer for peer in hf.peers if peer.tokens_per_s is None] if hf else []
    if missing:
        parts.append(f"Not measured: {'; '.join(_missing(peer) for peer in missing)}.")
    return "\n\n".join(parts)


def _missing(peer: Peer) -> str:
    return f"{peer.name} on {peer.work.label} ({peer.reason})"


def _speed_line(run: Generation, hf: PeerRun | None, work: Work, names: list[str]) -> list[str]:
    graph = any(row.work == work and row.graph for row in run.decodings)
    ours = {name: run.decoding(work, name, graph) for name in VARIANTS}
    ungraphed = run.decoding(work, "fused", False) if graph else None
    theirs = hf.measured(work) if hf else {}
    best = max(theirs, key=lambda name: theirs[name].p50, default="")
    fused = ours["fused"]
    ahead = times(fused.tokens_per_s.p50 / theirs[best].p50) if fused and best else NOTHING
    return [
        *_of(work),
        *(_rate(row) for row in (*ours.values(), ungraphed)),
        *(_spread(theirs.get(name), rate) for name in names),
        times(over_baseline(run, hf, work, graph)),
        f"{ahead} {best}".strip(),
    ]


def _rate(row: Decoding | None) -> str:
    return _spread(row.tokens_per_s if row else None, rate)


STEP_COLUMNS: list[tuple[str, Callable[[Decoding], str]]] = [
    ("variant", lambda row: row.variant),
    ("graph", lambda row: "yes" if row.graph else "no"),
    (">p50 us", lambda row: microseconds(row.latency.p50 if row.latency else None)),
    (">p5", lambda row: microseconds(row.latency.p5 if row.latency else None)),
    (">p95", lambda row: microseconds(row.latency.p95 if row.latency else None)),
    (">floor us", lambda row: microseconds(row.floor_us)),
    (">floor share", lambda row: percent(row.floor_share)),
    (">kernels", lambda row: str(row.kernels) if row.kernels else NOTHING),
    (">empty graph us", lambda row: microseconds(row.empty_graph_us)),
    (">softmax", lambda row: percent(row.softmax_share)),
    (">host us", lambda row: microseconds(row.host_us)),
    (">first token ms", lambda row: _spread(row.ttft_ms, milliseconds)),
    (">weights MB", lambda row: megabytes(row.weight_bytes)),
    (">cache MB", lambda row: megabytes(row.cache_bytes)),
]


def steps_block(story: Story) -> str:
    """A step of the decode: latencies, kernels, and the floors below it."""
    rows = story.run.decodings
    lines = [[*_of(row.work), *(cell(row) for _, cell in STEP_COLUMNS)] for row in rows]
    parts = [known_table([*OF, *(name for name, _ in STEP_COLUMNS)], lines)]
    notes = [f"{row.work.label} {row.variant}: {row.note}" for row in rows if row.note]
    if notes:
        parts.append(f"Graphs: {'; '.join(notes)}.")
    return "\n\n".join(parts)


def prefill_block(story: Story) -> str:
    """Milliseconds of a prompt."""
    run = story.run
    lines = []
    for work in dict.fromkeys(row.work for row in run.prefills):
        rows = [run.prefill(work, name) for name in VARIANTS]
        lines.append(
            [
                *_of(work),
                *(_spread(row.ms if row else None, milliseconds) for row in rows),
                times(prefill_over_baseline(run, work)),
            ]
        )
    header = [*OF, *(f">{name} ms" for name in VARIANTS), ">fused / baseline"]
    return known_table(header, lines) if lines else ""


def accuracy_block(story: Story) -> str:
    """Logits and tokens beside the baseline's."""
    lines = [
        [
            found.model,
            found.dtype,
            found.variant,
            f"{found.difference:.3g}",
            found.allowed,
            "yes" if found.within else "**no**",
            "none" if found.first_divergence is None else str(found.first_divergence),
            str(found.tokens),
        ]
        for found in story.run.accuracies
    ]
    header = ["model", "dtype", "variant", ">largest difference of a logit", ">allowed", "within"]
    header += [">first other token", ">tokens compared"]
    return table(header, lines) if lines else ""


def cpu_block(story: Story) -> str:
    """All of a CPU's run."""
    blocks = (setup_block, figures_block, speed_block, steps_block, prefill_block, accuracy_block)
    return "\n\n".join(text for block in blocks if (text := block(story)))
