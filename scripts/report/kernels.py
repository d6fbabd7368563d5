"""The tables about kernels: the basic shapes by variant, traffic, and launch configurations."""

from collections.abc import Callable

from .markdown import both, name_of, paired_table, pairs, passes, table
from .model import DIRECTIONS, Bench, Launch, Row, Variant
from .numbers import NOTHING, megabytes, microseconds, percent, times
from .targets import Peers

LADDER = ("naive", "warp", "block", "cluster", "stream", "warpfuse", "aten", "chain")
TITLES = {"aten": "ATen", "chain": "ATen chain"}
SHAPES_NAMED = 4  # in a line of the table of launches


def variant_order(name: str) -> tuple[int, str]:
    """From the naive kernel to the default, then ATen; unknown names last."""
    return (LADDER.index(name) if name in LADDER else len(LADDER), name)


def _launches(variant: Variant, value: str) -> str:
    """A property of a variant's kernels; ATen's are not recorded."""
    return " + ".join(str(getattr(launch, value)) for launch in variant.launches) or NOTHING


def _occupancy(variant: Variant) -> str:
    return (
        " + ".join(f"{launch.blocks_per_sm} / {launch.warps_per_sm}" for launch in variant.launches)
        or NOTHING
    )


def _kibibytes(variant: Variant) -> str:
    return " + ".join(f"{launch.shared_bytes / 1024:.1f}" for launch in variant.launches) or NOTHING


def _gb_per_s(row: Row, variant: Variant) -> str:
    return f"{row.least_bytes / variant.p50 / 1000:,.0f}" if variant.p50 else NOTHING


SEED_COLUMNS = (
    (">p50 us", lambda row, v: microseconds(v.p50) if v.p50 else f"{v.status}"),
    (">p5", lambda row, v: microseconds(v.p5)),
    (">p95", lambda row, v: microseconds(v.p95)),
    (">GB/s", _gb_per_s),
    (">share", lambda row, v: percent(row.share(v.name))),
    ("tier", lambda row, v: _launches(v, "tier")),
    (">blocks / warps an SM", lambda row, v: _occupancy(v)),
    (">registers", lambda row, v: _launches(v, "registers")),
    (">shared KiB", lambda row, v: _kibibytes(v)),
)


def _of_variant(name: str, cell: Callable[[Row, Variant], str]) -> Callable[[Row], str]:
    return lambda row: cell(row, row.variants[name])


def basic_table(bench: Bench, _peers: Peers) -> str:
    """Every variant on the basic shapes: p50, p5, p95, bandwidth, occupancy."""
    lines = []
    for key, pair in pairs(bench.preset("basic")):
        names = {name for row in pair.values() for name in row.variants}
        for name in sorted(names, key=variant_order):
            shown = {d: pair[d] for d in DIRECTIONS if d in pair and name in pair[d].variants}
            cells = [both(shown, _of_variant(name, cell)) for _, cell in SEED_COLUMNS]
            lines.append([name_of(key), key.dtype, TITLES.get(name, name), passes(shown), *cells])
    header = ["shape", "dtype", "variant", "pass", *(name for name, _ in SEED_COLUMNS)]
    return table(header, lines) if lines else ""


def traffic_table(bench: Bench, _peers: Peers) -> str:
    """Bytes by the model, and by a profiler's counters where it could be had."""
    rows = [row for row in bench.rows if "basic" in row.presets or row.traffic]

    def counted(*names: str) -> Callable[[Row], str]:
        def cell(row: Row) -> str:
            for name in names:
                if name in row.traffic:
                    found = row.traffic[name]
                    return f"{megabytes(found.read)} + {megabytes(found.written)}"
            return NOTHING

        return cell

    text = (
        paired_table(
            rows,
            [
                (">least MB", lambda row: megabytes(row.least_bytes)),
                (">fused MB", lambda row: megabytes(row.fused_bytes)),
                (">unfused MB", lambda row: megabytes(row.unfused_bytes)),
                (">saved", lambda row: times(row.unfused_bytes / row.fused_bytes)),
                (">fused, counted", counted("warpfuse")),
                (">ATen, counted", counted("chain", "aten")),
            ],
        )
        if rows
        else ""
    )
    if text and bench.traffic_how:
        text += f"\n\nCounted, read + written: {bench.traffic_how}"
    return text


def launch_table(bench: Bench, _peers: Peers) -> str:
    """Each kernel configuration that ran, with the shapes that it ran for."""
    found: dict[tuple[str | int, ...], list[str]] = {}
    for row in bench.rows:
        for variant in row.variants.values():
            for launch in variant.launches:
                shapes = found.setdefault(_configuration(row, launch), [])
                if name_of(row.key) not in shapes:
                    shapes.append(name_of(row.key))
    lines = [
        [*(str(value) for value in key), _some(shapes)] for key, shapes in sorted(found.items())
    ]
    if not lines:
        return ""
    header = [
        "tier",
        "kernel",
        "dtype",
        "pass",
        ">threads",
        ">cluster",
        ">packs a lane",
        ">registers",
        ">shared bytes",
        ">local bytes",
        ">blocks an SM",
        ">warps an SM",
        "ran for",
    ]
    return (
        f"<details><summary>{len(lines)} configurations</summary>\n\n"
        f"{table(header, lines)}\n\n</details>"
    )


def _configuration(row: Row, launch: Launch) -> tuple[str | int, ...]:
    return (
        launch.tier,
        launch.kernel,
        row.key.dtype,
        row.direction,
        launch.threads,
        launch.cluster,
        launch.lane_packs,
        launch.registers,
        launch.shared_bytes,
        launch.local_bytes,
        launch.blocks_per_sm,
        f"{launch.warps_per_sm} of {launch.max_warps_per_sm}",
    )


def _some(shapes: list[str]) -> str:
    more = len(shapes) - SHAPES_NAMED
    return ", ".join(shapes[:SHAPES_NAMED]) + (f" and {more} more" if more > 0 else "")
