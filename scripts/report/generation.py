"""The tables of generation: speed beside Hugging Face's, prompts, accuracy, and the targets."""

from pathlib import Path

from .run import Generated, Generation, Work
from .tables import header_rows
from .targets import MEASURES, Peers, over_baseline, prefill_over_baseline
from .text import NOTHING, bandwidth, known_table, microseconds, percent, rate, table, times

VARIANTS = ("baseline", "fused", "sdpa")
WORK = ["model", "dtype", ">batch", ">prompt"]


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
    rows = header_rows(run.path.name, run.raw, run.raw["device"].get("name", "unknown"), more)
    if run.hf_path:
        theirs = header_rows(run.hf_path.name, run.hf, run.hf["device"].get("name", "unknown"), [])
        rows += [[f"Hugging Face: {name}", text] for name, text in theirs]
        ways = {peer.variant: peer.raw["how"] for peer in run.peers if peer.raw.get("how")}
        rows += [[name, text] for name, text in ways.items()]
    return table(["", ""], rows)


def targets_table(run: Generation, peers: Peers) -> str:
    """Each target beside the worst of the works that it is for: with a graph on a GPU, else without."""
    works = list(dict.fromkeys(row.work for row in (*run.rows, *run.prefills)))
    graph = run.raw["device"].get("type") == "cuda"
    lines, met = [], []
    for target in peers.generate:
        found = (MEASURES[target.measure].of(run, work, graph) for work in works if target.covers(work))
        values = [value for value in found if value is not None]
        mark = "not measured"
        if values:
            met.append(all(target.met(value) for value in values))
            mark = "✓" if met[-1] else "✗"
        worst = (max if target.upper else min)(values, default=None)
        of = [str(target.where.get(name, "all")) for name in Work._fields[:4]]
        lines.append([*of, target.text, MEASURES[target.measure].show(worst), mark])
    if not lines:
        return "No targets are set for this device."
    text = table([*WORK, "target", ">measured", "met"], lines)
    return f"{sum(met)} of {len(met)} targets are met.\n\n{text}" if met else text


def speed_table(run: Generation, _peers: Peers) -> str:
    """Tokens per second: ours with graphs where there are any, and Hugging Face's."""
    names = list(dict.fromkeys(peer.variant for peer in run.peers))
    lines = [_speed_line(run, work, names) for work in dict.fromkeys(row.work for row in run.rows)]
    header = [*WORK, *(f">{name}" for name in VARIANTS), ">fused, no graph"]
    header += [*(f">{name}" for name in names), ">fused / baseline", "fused / fastest HF"]
    text = known_table(header, lines)
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
    theirs = run.theirs(work)
    best, fused = max(theirs.values(), key=lambda peer: peer.p50, default=None), ours["fused"]
    ahead = f"{times(fused.p50 / best.p50)} {best.variant}" if fused and best else NOTHING
    return [
        *work.cells,
        *(_spread(row) for row in (*ours.values(), ungraphed)),
        *(_spread(theirs.get(name)) for name in names),
        times(over_baseline(run, work, graph)),
        ahead,
    ]


def steps_table(run: Generation, _peers: Peers) -> str:
    """A step of the fused variant: its time, and the floors below it."""
    lines = [
        [
            *row.work.cells,
            microseconds(row.raw["latency_us"]["p50"]),
            microseconds(row.raw.get("floor_us")),
            percent(row.floor_share),
            str(row.raw.get("kernels_per_token") or NOTHING),
            percent(row.raw.get("softmax_kernels_share")),
            microseconds(row.raw.get("host_us_per_token")),
        ]
        for row in run.rows
        if row.variant == "fused" and row.raw.get("latency_us")
        and row.graph == (run.raw["device"].get("type") == "cuda")
    ]
    header = [">p50 us", ">floor us", ">floor share", ">kernels", ">softmax", ">host us"]
    return known_table([*WORK, *header], lines)


def prefill_table(run: Generation, _peers: Peers) -> str:
    """Milliseconds per prompt."""
    lines = []
    for work in dict.fromkeys(row.work for row in run.prefills):
        cells = (_spread(run.prefill(work, name), microseconds) for name in VARIANTS)
        lines.append([*work.cells, *cells, times(prefill_over_baseline(run, work))])
    return known_table([*WORK, *(f">{name} ms" for name in VARIANTS), ">fused / baseline"], lines)


def accuracy_table(run: Generation, _peers: Peers) -> str:
    """Logits and tokens beside the baseline's."""
    lines = []
    for row in run.raw.get("accuracy", []):
        # Runs before the comparison by rows give an absolute limit.
        relative = row.get("relative_logit_difference")
        difference = row["largest_logit_difference"] if relative is None else relative
        limit = row["allowed"] if relative is None else row["tolerance"]
        other = row.get("first_divergence")
        lines.append(
            [
                row["model"],
                row["dtype"],
                row["variant"],
                f"{row['largest_logit_difference']:.3g}",
                f"{limit:.3g}" + " of its row" * (relative is not None),
                "yes" if difference <= limit else "**no**",
                "none" if other is None else str(other),
                str(row["tokens_compared"]),
            ]
        )
    header = ["model", "dtype", "variant", ">largest difference of a logit", ">allowed", "within"]
    return table([*header, ">first other token", ">tokens compared"], lines) if lines else ""
