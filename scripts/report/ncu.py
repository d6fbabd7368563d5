"""Runs the benchmark under Nsight Compute and puts the memory traffic that it counts into the run's file."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from .run import Bench, ReportError, write

READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
# Enough to see what fusing saves, forward; each variant is a process of its own.
ROWS = {
    "softmax 1024x8192 float32 none": ("warpfuse", "aten"),
    "softmax 1024x8192 bfloat16 none": ("warpfuse", "aten"),
    "scaled_masked_softmax 96x1024x1024 bfloat16 causal": ("warpfuse", "chain"),
    "scaled_masked_softmax 1x1024x1024 float32 causal": ("warpfuse", "chain"),
    "scaled_masked_softmax 1x1024x1024 float32 padding": ("warpfuse", "chain"),
}
SECONDS = 60  # that a process may take
HOW = (
    "Nsight Compute's dram__bytes_read.sum and dram__bytes_write.sum over the kernels of one "
    "forward call. It empties the caches before each kernel (--cache-control all), so a chain's "
    "intermediate results are read from memory even where they would have stayed in the L2 cache, "
    "and what is still in the L2 cache when a kernel ends is not counted as written."
)


def measure_traffic(path: Path, host: Path, ncu: str) -> None:
    """Counts for those of ROWS that the file holds; the file is rewritten after each."""
    bench = Bench(path)
    for row in bench.rows:
        shape = "x".join(str(size) for size in row.key.shape)
        name = f"{row.key.operator} {shape} {row.key.dtype} {row.key.mask}"
        for variant in ROWS.get(name, ()) if row.direction == "forward" else ():
            if row.time(variant):
                counted = {"variant": variant} | count(command(ncu, host, name.split(), variant))
                others = [entry for entry in row.raw.get("traffic", []) if entry["variant"] != variant]
                row.raw["traffic"] = [*others, counted]
                bench.raw["traffic_how"] = HOW
                write(path, bench.raw)
                print(f"traffic: {name} {json.dumps(counted)}", file=sys.stderr)


def command(ncu: str, host: Path, row: list[str], variant: str) -> list[str]:
    """One call of one variant under ncu; `page raw` has a column per metric."""
    operator, shape, dtype, mask = row
    options = "--clock-control none --cache-control all --profile-from-start off"
    options += f" --csv --page raw --print-units base --metrics {READ},{WRITTEN}"
    bench = f"bench {operator} --device cuda --shapes {shape} --dtype {dtype} --profile {variant}"
    masked = ["--mask", mask] if operator == "scaled_masked_softmax" else []
    return [ncu, *options.split(), str(host), *bench.split(), *masked]


def count(call: list[str]) -> dict[str, Any]:
    """The sums over all kernels of a process."""
    try:
        done = subprocess.run(call, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReportError(f"ncu: {error}") from error
    if done.returncode != 0 and "==ERROR==" not in done.stdout:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise ReportError(f"ncu: exit code {done.returncode}: {said[-1]}")
    return parse(done.stdout)


def parse(output: str) -> dict[str, Any]:
    """The output of `ncu --csv --page raw`: its table, with units in the first line, follows other lines."""
    said = [line.removeprefix("==ERROR==").strip() for line in output.splitlines() if line.startswith("==ERROR==")]
    table = [line for line in output.splitlines() if line.startswith('"')]
    units, *kernels = csv.DictReader(table) if table else [{}]
    if not kernels:
        raise ReportError(f"ncu: {said[0] if said else 'no kernel was profiled'}")
    if {units.get(READ), units.get(WRITTEN)} != {"byte"}:
        raise ReportError(f"ncu: expected the unit byte, got {units.get(READ)} and {units.get(WRITTEN)}")
    read, written = (sum(float(row[name].replace(",", "")) for row in kernels) for name in (READ, WRITTEN))
    return {"dram_read_bytes": read, "dram_write_bytes": written, "kernels": len(kernels)}
