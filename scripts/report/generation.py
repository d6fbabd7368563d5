"""The tables of generation: speed beside Hugging Face's, prompts, accuracy, and the targets."""

from pathlib import Path

from .run import Generated, Generation, Work, ratio
from .tables import header_rows
from .targets import Peers, over_baseline, prefill_over_baseline
from .text import NOTHING, bandwidth, known_table, microseconds, percent, rate, table, times

VARIANTS = ("baseline", "fused", "sdpa", "steps")
WORK = ["model", "dtype", ">batch", ">prompt"]


def _works(rows: list[Generated]) -> list[Work]:
    return list(dict.fromkeys(row.work for row in rows))


def _spread(row: Generated | None, text=rate) -> str:
    """The median, and in brackets the least and the most."""
    if row is None or row.rate is None:
        return NOTHING
    return f"{text(row.rate['p50'])} ({text(row.rate['min'])}–{text(row.rate['max'])})"


def setup_table(run: Generation, _peers: Peers) -> str:
    """When, on what, and how."""
    more = [["bandwidth of reads", bandwidth(run.raw["read_gb_per_s"])]]
    if source := run.raw.get("prompts", {}).get("source"):
        more.append(["prompts", Path(source).name])
    rows = header_rows(run, run.device_name, more)
    if run.hf:
        rows += [[f"Hugging Face: {name}", text] for name, text in header_rows(run.hf, run.hf.device_name, [])]
        rows += map(list, {peer.variant: peer.raw["how"] for peer in run.peers if peer.raw.get("how")}.items())
    return table(["", ""], rows)


def targets_table(run: Generation, peers: Peers) -> str:
    """Each target beside the worst of the works that it is for: with a graph on a GPU, else without."""
    works = _works([*run.rows, *run.prefills])
    lines, met = [], []
    for target in peers.generate:
        found = (target.measure.of(run, work, run.on_gpu) for work in works if target.covers(work))
        values = [value for value in found if value is not None]
        mark = "not measured"
        if values:
            met.append(all(target.met(value) for value in values))
            mark = "✓" if met[-1] else "✗"
        worst = (max if target.upper else min)(values, default=None)
        of = [str(target.where.get(name, "all")) for name in Work._fields[:4]]
        lines.append([*of, target.text, target.measure.show(worst), mark])
    if not lines:
        return "No targets are set for this device."
    text = table([*WORK, "target", ">measured", "met"], lines)
    return f"{sum(met)} of {len(met)} targets are met.\n\n{text}" if met else text


def speed_table(run: Generation, _peers: Peers) -> str:
    """Tokens per second: ours with graphs where there are any, and Hugging Face's."""
    names = list(dict.fromkeys(peer.variant for peer in run.peers))
    header = [*WORK, *(f">{name}" for name in VARIANTS), ">fused, no graph"]
    header += [*(f">{name}" for name in names), ">fused / baseline", "fused / fastest HF"]
    header += [">steps / fastest other", "steps / fastest HF"]
    text = known_table(header, [_speed_line(run, work, names) for work in _works(run.rows)])
    missing = "; ".join(
        f"{peer.variant} on {' '.join(peer.work.cells)} ({peer.raw.get('reason', '')})"
        for peer in run.peers
        if not peer.rate
    )
    return f"{text}\n\nNot measured: {missing}." if missing else text


def _speed_line(run: Generation, work: Work, names: list[str]) -> list[str]:
    graph = any(row.work == work and row.graph for row in run.rows)
    ours = {name: run.find(work, name, graph) for name in VARIANTS}
    ungraphed = run.find(work, "fused", False) if graph else None
    rates = {name: row.p50 for name, row in ours.items() if row and row.p50}
    theirs = run.theirs(work)
    best = max(theirs.values(), key=lambda peer: peer.p50, default=None)
    others = max((value for name, value in rates.items() if name != "steps"), default=None)

    def ahead(name: str) -> str:
        return f"{times(rates[name] / best.p50)} {best.variant}" if name in rates and best else NOTHING

    return [
        *work.cells,
        *(_spread(row) for row in (*ours.values(), ungraphed)),
        *(_spread(theirs.get(name)) for name in names),
        times(over_baseline(run, work, graph)),
        ahead("fused"),
        times(ratio(rates.get("steps"), others)),
        ahead("steps"),
    ]


def steps_table(run: Generation, _peers: Peers) -> str:
    """A step of the variants of the plugin: its time, and the floors below it."""
    lines = [
        [
            *row.work.cells,
            row.variant,
            microseconds(row.raw["latency_us"]["p50"]),
            microseconds(row.raw["latency_us"].get("p95")),
            microseconds(row.raw.get("floor_us")),
            percent(row.floor_share),
            str(row.raw.get("kernels_per_token") or NOTHING),
            percent(row.raw.get("softmax_kernels_share")),
            microseconds(row.raw.get("host_us_per_token")),
        ]
        for row in run.rows
        if row.variant in ("fused", "steps") and row.raw.get("latency_us") and row.graph == run.on_gpu
    ]
    header = ["variant", ">p50 us", ">p95 us", ">floor us", ">floor share", ">kernels", ">softmax", ">host us"]
    return known_table([*WORK, *header], lines)


def prefill_table(run: Generation, _peers: Peers) -> str:
    """Milliseconds per prompt."""
    lines = []
    for work in _works(run.prefills):
        cells = (_spread(run.prefill(work, name), microseconds) for name in VARIANTS)
        lines.append([*work.cells, *cells, times(prefill_over_baseline(run, work))])
    return known_table([*WORK, *(f">{name} ms" for name in VARIANTS), ">fused / baseline"], lines)


def decode_runs(docs: Path) -> list[Path]:
    """The runs that docs/operators/decode.md shows, in its order: newer GPUs first."""
    return sorted((docs / "benchmarks").glob("*-steps.json"), reverse=True)


def decode_table(run: Generation) -> str:
    """What docs/operators/decode.md shows: rates, and times of prompts; the best of ours is bold."""
    works = [(work, ", tokens/s", rate, True) for work in _works(run.rows)]
    works += [(work, ", ms", lambda ms: f"{ms:.2f}", False) for work in _works(run.prefills)]
    peers = list(dict.fromkeys(peer.variant for peer in run.peers))
    lines = []
    for work, unit, text, is_rate in works:
        found = {name: run.find(work, name, True) if is_rate else run.prefill(work, name) for name in VARIANTS}
        values = {name: row.p50 for name, row in found.items() if row and row.p50}
        best = (max if is_rate else min)(values.values(), default=None)
        cells = [text(values[name]) if name in values else NOTHING for name in VARIANTS]
        cells = [f"**{cell}**" if values.get(name) == best else cell for name, cell in zip(VARIANTS, cells, strict=True)]
        theirs = run.theirs(work) if is_rate else {}
        cells += [text(theirs[name].p50) if name in theirs else NOTHING for name in peers]
        size = f"batch {work.batch}, prompt {work.prompt}" if is_rate else f"prefill {work.batch} x {work.prompt}"
        lines.append([f"{work.model} {work.dtype}, {size}{unit}", *cells])
    return known_table(["model", *(f">{name}" for name in (*VARIANTS, *peers))], lines)


def accuracy_table(run: Generation, _peers: Peers) -> str:
    """Logits and tokens beside the baseline's."""
    lines = []
    for row in run.raw.get("accuracy", []):
        largest = row["largest_logit_difference"]
        # Runs before the comparison by rows give an absolute limit.
        difference, limit, of = largest, row.get("allowed"), ""
        if row.get("relative_logit_difference") is not None:
            difference, limit, of = row["relative_logit_difference"], row["tolerance"], " of its row"
        other = row.get("first_divergence")
        within = "yes" if difference <= limit else "**no**"
        cells = [f"{largest:.3g}", f"{limit:.3g}{of}", within, "none" if other is None else str(other)]
        lines.append([row["model"], row["dtype"], row["variant"], *cells, str(row["tokens_compared"])])
    header = ["model", "dtype", "variant", ">largest difference of a logit", ">allowed", "within"]
    return table([*header, ">first other token", ">tokens compared"], lines) if lines else ""
