"""The tables of times: softmax, masked softmax, the CPU's, and the targets."""

from collections.abc import Callable

from .markdown import Column, name_of, paired_table, table
from .model import Bench, Row
from .numbers import NOTHING, bandwidth, megabytes, microseconds, percent, times
from .targets import Peers, Verdict

MASKED = "scaled_masked_softmax"


def spread(row: Row, name: str) -> str:
    """A variant's median and, in brackets, its 5th and 95th percentile; else why there is none."""
    variant = row.variants.get(name)
    if variant is None:
        return NOTHING
    if variant.p50 is None:
        return f"**{variant.status}**" if name == "warpfuse" else variant.status
    return f"{microseconds(variant.p50)} ({microseconds(variant.p5)}–{microseconds(variant.p95)})"


def time_of(name: str) -> Callable[[Row], str]:
    """The median time of a variant, or its status."""

    def cell(row: Row) -> str:
        variant = row.variants.get(name)
        if variant is None:
            return NOTHING
        return microseconds(variant.p50) if variant.p50 else variant.status

    return cell


def speed_up(name: str) -> Callable[[Row], str]:
    """How many times ours is faster than a variant."""

    def cell(row: Row) -> str:
        theirs, ours = row.time(name), row.time("warpfuse")
        return times(theirs / ours) if theirs and ours else NOTHING

    return cell


def memory_beside(name: str) -> Callable[[Row], str]:
    """What a variant allocates beside its inputs and its result."""

    def cell(row: Row) -> str:
        variant = row.variants.get(name)
        return megabytes(variant.extra_bytes if variant else None)

    return cell


def copy_ratio(row: Row) -> str:
    """The time of a copy of the same bytes, over ours."""
    ours = row.time("warpfuse")
    return percent(row.copy / ours) if row.copy and ours else NOTHING


def verdicts(row: Row, bench: Bench, peers: Peers) -> list[Verdict]:
    """The targets that cover a row."""
    return [t.judge(row, bench, peers) for t in peers.targets if t.covers(row)]


def figures_of(bench: Bench, peers: Peers) -> Callable[[Row], str]:
    """The targets that cover a row, each with whether it is met."""
    return lambda row: ", ".join(v.mark for v in verdicts(row, bench, peers)) or NOTHING


def _own(bench: Bench, peers: Peers) -> dict[str, Column]:
    """Columns that are about ours alone, by a short name."""

    def event(row: Row) -> str:
        variant = row.variants.get("warpfuse")
        return microseconds(variant.event_p50 if variant else None)

    def peer(row: Row) -> str:
        found = peers.peer(row)
        if found is None:
            return NOTHING
        return f"{microseconds(found.us)} {found.name}" + (
            ", graph" if found.timing == "graph" else ""
        )

    def beside(row: Row) -> str:
        found = peers.compared(row)
        return f"{found.text} ({times(found.ratio)})" if found else NOTHING

    return {
        "floor": (">floor us", lambda row: microseconds(row.floor)),
        "ours": (">warpfuse us", lambda row: spread(row, "warpfuse")),
        "share": (">share", lambda row: percent(row.share("warpfuse"))),
        "copy": (">of a copy", copy_ratio),
        "event": (">event us", event),
        "beside": ("best peer us, same run", beside),
        "peer": ("best peer us, other run", peer),
        "target": ("target", figures_of(bench, peers)),
    }


def _beside(rows: list[Row], bench: Bench, peers: Peers, other: str, title: str) -> str:
    """Ours beside another variant; empty without rows."""
    own = _own(bench, peers)
    columns = [
        *(own[name] for name in ("floor", "ours", "share", "copy")),
        (f">{title} us", time_of(other)),
        (">speed-up", speed_up(other)),
        *(own[name] for name in ("event", "beside", "peer", "target")),
    ]
    return paired_table(rows, columns) if rows else ""


def softmax_table(bench: Bench, peers: Peers) -> str:
    """softmax and log_softmax over the shapes of the table."""
    rows = [row for row in bench.preset("table") if row.key.operator in ("softmax", "log_softmax")]
    return _beside(rows, bench, peers, "aten", "ATen")


def masked_table(bench: Bench, peers: Peers) -> str:
    """scaled_masked_softmax over the shapes of the table, beside ATen's chain of kernels."""
    rows = [row for row in bench.preset("table") if row.key.operator == MASKED]
    return _beside(rows, bench, peers, "chain", "chain")


def cpu_table(bench: Bench, peers: Peers) -> str:
    """Everything that was measured on a CPU, and what glibc's default malloc makes of it."""
    own = _own(bench, peers)

    def default_malloc(row: Row) -> str:
        found = [row.variants.get(name) for name in ("warpfuse", "chain", "aten")]
        ours, chain, aten = (v.default_malloc_p50 if v else None for v in found)
        return f"{microseconds(ours)} of {microseconds(chain or aten)}" if ours else NOTHING

    columns = [
        own["floor"],
        own["ours"],
        own["share"],
        (">ATen us", time_of("aten")),
        (">speed-up", speed_up("aten")),
        (">chain us", time_of("chain")),
        (">speed-up", speed_up("chain")),
        (">default malloc us", default_malloc),
        own["target"],
    ]
    return paired_table(bench.rows, columns)


def targets_summary(bench: Bench, peers: Peers) -> str:
    """How many of the targets are met, and a line for each that is not; wrong results first."""
    judged = [(row, v) for row in bench.rows for v in verdicts(row, bench, peers)]
    unmeasured = dict.fromkeys(
        f"{name_of(target.key)} {target.key.dtype} {direction}"
        for target in peers.targets
        if target.key
        for direction in target.directions
        if not any(
            v.target is target and row.direction == direction and v.reached is not None
            for row, v in judged
        )
    )
    parts = []
    wrong = [
        f"{variant.name} on {name_of(row.key)} {row.key.dtype} {row.direction}"
        for row in bench.rows
        for variant in row.variants.values()
        if variant.status == "wrong"
    ]
    if wrong:
        parts.append(f"**Wrong results, not timed: {'; '.join(wrong)}.**")
    known = [(row, v) for row, v in judged if v.reached is not None]
    if known:
        missed = [(row, v) for row, v in known if not v.reached]
        parts.append(f"{len(known) - len(missed)} of {len(known)} targets are met.")
        if missed:
            parts.append(
                table(
                    ["missed", "dtype", "pass", "target", ">measured"],
                    [
                        [
                            name_of(row.key),
                            row.key.dtype,
                            row.direction,
                            v.target.text,
                            v.target.value_text(v),
                        ]
                        for row, v in missed
                    ],
                )
            )
    if unmeasured:
        parts.append(f"Not measured: {'; '.join(unmeasured)}.")
    return "\n\n".join(parts) or "No targets are set for this device."


def _large_copy(bench: Bench) -> str:
    """Its speed, and how far the runs differed."""
    text = f"{bandwidth(bench.copy_gb_per_s)} ({amount(bench.copy_bytes)} read and written)"
    lowest, highest = (bandwidth(f(bench.run_copies or (0,))) for f in (min, max))
    return text if lowest == highest else f"{text}; {lowest} to {highest} over the runs"


def amount(count: float) -> str:
    """Bytes in powers of two."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB")):
        if count >= unit:
            return f"{count / unit:.4g} {name}"
    return f"{count:.0f} bytes"


def setup_table(bench: Bench, _peers: Peers) -> str:
    """When, on what, with which versions, and how it was timed."""
    device = [bench.device_name]
    for key, value in bench.device.items():
        if key.endswith("_bytes"):
            device.append(
                f"{amount(float(value))} {key.removesuffix('_bytes').replace('l2', 'L2')}"
            )
        elif key not in ("name", "type"):
            device.append(f"{key} {value}")
    rows = [
        ["date", bench.date],
        ["device", ", ".join(device)],
        ["versions", ", ".join(f"{name} {value}" for name, value in bench.versions.items())],
        ["large copy", _large_copy(bench)],
    ]
    if bench.empty_kernel:
        rows.append(["empty kernel", f"{microseconds(bench.empty_kernel)} us"])
    rows += [[f"timing: {name}", text] for name, text in bench.timing.items()]
    if bench.command:
        rows.append(["command", f"`{bench.command}`"])
    rows.append(["data", f"[{bench.path.name}](./{bench.path.name})"])
    return table(["", ""], rows)
