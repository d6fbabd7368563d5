"""The tables of operators: times beside ATen and peers, the CPU's, memory traffic, and the targets."""

from .columns import EVENT, OURS, OURS_AND_COPY, TIME, Cell, Column, Ratio, beside, error_of, errors, memory_of
from .columns import other_run, paired_table, same_run, target_column, time_of
from .rules import rules_table
from .run import Bench, Key, Row, Run, ratio
from .targets import ALONE, Peers, alone, fastest, on_top, shown
from .text import NOTHING, amount, bandwidth, megabytes, microseconds, table, times


def _beside_table(rows: list[Row], bench: Bench, peers: Peers, title: str, name: str) -> str:
    others = [(">event us", EVENT), same_run(peers), other_run(peers, ", graph"), target_column(bench, peers)]
    return paired_table(rows, [*OURS_AND_COPY, *beside(title, name), *errors(title, name), *others])


def softmax_table(bench: Bench, peers: Peers) -> str:
    rows = bench.preset("table", "softmax", "log_softmax")
    return _beside_table(rows, bench, peers, "ATen", "aten")


def masked_table(bench: Bench, peers: Peers) -> str:
    rows = bench.preset("table", "scaled_masked_softmax")
    return _beside_table(rows, bench, peers, "chain", "chain")


def logprob_table(bench: Bench, peers: Peers) -> str:
    columns = [
        *OURS_AND_COPY,
        (">in place us", time_of("in_place")),
        *beside("log_softmax + gather", "aten"),
        *beside("cross_entropy", "cross_entropy"),
        *errors("ATen", "aten"),
        (">MB beside", memory_of("warpfuse")),
        (">in place", memory_of("in_place")),
        (">ATen", memory_of("aten")),
        other_run(peers, ""),
        target_column(bench, peers),
    ]
    return paired_table(bench.preset("logprob", "fused_logprob"), columns)


def dropout_table(bench: Bench, peers: Peers) -> str:
    def alone_us(row: Row) -> str:
        name = ALONE[row.key.operator]
        return time_of(name)(row) + f" {name}" * bool(alone(row))

    def added(row: Row) -> str:
        us = on_top(row)
        return NOTHING if us is None else f"{'−' if us < 0 else '+'}{microseconds(abs(us))}"

    columns = [
        *OURS_AND_COPY,
        *beside("ATen", "aten"),
        *errors("ATen", "aten"),
        (">alone us", alone_us),
        (">on top us", added),
        (">inference us", time_of("inference")),
        (">split float32 us", time_of("split")),
        (">MB beside", memory_of("warpfuse")),
        (">ATen", memory_of("aten")),
        (">alone", lambda row: memory_of(ALONE[row.key.operator])(row)),
        target_column(bench, peers),
    ]
    return paired_table(bench.preset("dropout", *ALONE), columns)


def cpu_table(bench: Bench, peers: Peers) -> str:
    def default_malloc(row: Row) -> str:
        ours, chain, aten = (row.figure(name, "default_malloc_p50") for name in ("warpfuse", "chain", "aten"))
        return f"{microseconds(ours)} of {microseconds(chain or aten)}" if ours else NOTHING

    def aten_error(row: Row) -> str:
        return error_of("chain" if "chain" in row.variants else "aten")(row)

    columns = [*OURS, *beside("ATen", "aten"), *beside("chain", "chain")]
    columns += [(">largest error", error_of("warpfuse")), (">ATen's or the chain's", aten_error)]
    columns += [(">default malloc us", default_malloc), target_column(bench, peers)]
    return paired_table(bench.rows, columns)


def traffic_table(bench: Bench, _peers: Peers) -> str:
    """Bytes by the model, and by a profiler's counters where it could be had."""

    def counted(*names: str) -> Cell:
        def cell(row: Row) -> str:
            for entry in row.raw.get("traffic", []):
                if entry["variant"] in names:
                    read, written = entry["dram_read_bytes"], entry["dram_write_bytes"]
                    return f"{megabytes(read)} + {megabytes(written)}"
            return NOTHING

        return cell

    columns = [
        (">least MB", lambda row: megabytes(row.least_bytes)),
        (">fused MB", lambda row: megabytes(row.raw["fused_bytes"])),
        (">unfused MB", lambda row: megabytes(row.raw["unfused_bytes"])),
        (">saved", Ratio(lambda row: ratio(row.raw["unfused_bytes"], row.raw["fused_bytes"]), times)),
        (">fused, counted", counted("warpfuse")),
        (">ATen, counted", counted("chain", "aten")),
    ]
    text = paired_table((row for row in bench.rows if row.raw.get("traffic")), columns)
    how = bench.raw.get("traffic_how")
    return f"{text}\n\nCounted, read + written: {how}" if text and how else text


def targets_table(bench: Bench, peers: Peers) -> str:
    """How many of the targets are met, and a line per missed one; wrong results first."""
    judged = [(row, verdict) for row in bench.rows for verdict in peers.verdicts(row, bench) if verdict.met is not None]
    missed = [(row, verdict) for row, verdict in judged if not verdict.met]
    wrong = [f"{v.name} on {row.name}" for row in bench.rows for v in row.variants.values() if v.status == "wrong"]
    parts = [f"**Wrong results, not timed: {'; '.join(wrong)}.**"] if wrong else []
    if judged:
        parts.append(f"{len(judged) - len(missed)} of {len(judged)} targets are met.")
    lines = []
    for row, verdict in missed:
        lines.append([row.key.title, row.key.dtype, row.direction, verdict.target.text, verdict.measured])
    if lines:
        parts.append(table(["missed", "dtype", "pass", "target", ">measured"], lines))
    held = {(id(verdict.target), row.direction) for row, verdict in judged}
    unmeasured = [
        f"{Key(**target.where).title} {target.where['dtype']} {direction}"
        for target in peers.targets
        for direction in target.directions
        if "shape" in target.where and (id(target), direction) not in held
    ]
    if unmeasured:
        parts.append(f"Not measured: {'; '.join(dict.fromkeys(unmeasured))}.")
    if rules := rules_table(bench, peers):
        parts.append(rules)
    return "\n\n".join(parts) or "No targets are set for this device."


def setup_table(bench: Bench, _peers: Peers) -> str:
    """When, on what, with which versions, and how it was timed."""
    device = [bench.device_name]
    for key, value in bench.device.items():
        if key.endswith("_bytes"):
            device.append(f"{amount(float(value))} {key.removesuffix('_bytes').replace('l2', 'L2')}")
        elif key not in ("name", "type"):
            device.append(f"{key} {value}")
    copy = f"{bandwidth(bench.copy_gb_per_s)} ({amount(bench.copy_bytes)} read and written)"
    runs = [run["large_copy"]["gb_per_s"] for run in bench.raw.get("runs", [])]
    lowest, highest = (bandwidth(of(runs or [0])) for of in (min, max))
    if lowest != highest:
        copy += f"; {lowest} to {highest} over the runs"
    rows = [["large copy", copy]]
    if bench.empty_kernel:
        rows.append(["empty kernel", f"{microseconds(bench.empty_kernel)} us"])
    return table(["", ""], header_rows(bench, ", ".join(device), rows))


def versions_of(run: Run) -> str:
    """What a run was made with; a CPU's has no CUDA."""
    return ", ".join(f"{name} {value}" for name, value in run.raw.get("versions", {}).items() if value)


def header_rows(run: Run, device: str, more: list[list[str]]) -> list[list[str]]:
    """Date, device, versions, what is given, timing, command and data of any run."""
    rows = [["date", run.raw["date"]], ["device", device], ["versions", versions_of(run)], *more]
    rows += [[f"timing: {name}", text] for name, text in run.raw.get("timing", {}).items()]
    if run.raw.get("command"):
        rows.append(["command", f"`{run.raw['command']}`"])
    return [*rows, ["data", f"[{run.path.name}](./{run.path.name})"]]


def peers_block(_bench: Bench, peers: Peers) -> str:
    """How other implementations were timed, and all of their times beside ours."""
    parts, run = [], peers.beside
    names = list(dict.fromkeys(shown(name) for row in (run.rows if run else []) for name in row.variants))
    if run:
        timing = "; ".join(f"{name}: {text}" for name, text in run.raw["timing"].items())
        copy = f"{amount(run.copy_bytes)} ran at {bandwidth(run.copy_gb_per_s)}"
        parts.append(
            f"Same run: `{run.raw['command']}`, {run.raw['date']}, on {run.device_name} ({versions_of(run)}; a copy of "
            f"{copy}; [{run.path.name}](./{run.path.name})). Times are {timing}."
        )
        graph, event = (
            [found.ratio >= 1 for row in run.rows if (found := fastest(row, of))] for of in ("p50", "event_p50")
        )
        parts.append(
            f"Ours is the fastest on {sum(graph)} of {len(graph)} rows by the graph's times, "
            f"on {sum(event)} of {len(event)} by event times."
        )
        parts.append(_peers_table(run, [name for name in names if name != "warpfuse"]))
    if peers.best:
        versions = "; ".join(f"{name} is {text}" for name, text in peers.versions.items() if name not in names)
        kept = " Those that were run again beside ours are left out here." if names else ""
        parts.append(f"Other run: {peers.measured}{kept} {versions}.")
    return "\n\n".join(parts) or "No other kernels were measured on this device."


def _peers_table(run: Bench, names: list[str]) -> str:
    def of(title: str) -> Cell:  # ATen's times stand in one column, one kernel's or a chain's
        return lambda row: next((time_of(name)(row) for name in row.variants if shown(name) == title), NOTHING)

    def over_ours(row: Row) -> float | None:
        found = fastest(row)
        return found.ratio if found else None

    def by_event(row: Row) -> str:
        found = fastest(row, "event_p50")
        return found.text if found else NOTHING

    columns: list[Column] = [TIME, *((f">{name}", of(name)) for name in names)]
    columns += [(">best peer / ours", Ratio(over_ours, times)), (">event: warpfuse", EVENT), ("event: best peer", by_event)]
    return paired_table(run.rows, columns)
