"""Runs the benchmark under Nsight Compute and puts what it counted into the benchmark's file."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from .counters import READ, WRITTEN, Counted, parse
from .errors import ReportError
from .fields import Fields
from .merge import row_key, write_bench
from .model import load_bench, read_key

# Enough to see what fusing saves; each is one process a variant.
ROWS: list[dict[str, Any]] = [
    {"operator": "softmax", "shape": [1024, 8192], "dtype": "float32"},
    {"operator": "softmax", "shape": [1024, 8192], "dtype": "bfloat16"},
    {
        "operator": "scaled_masked_softmax",
        "shape": [96, 1024, 1024],
        "dtype": "bfloat16",
        "mask": "causal",
    },
    {
        "operator": "scaled_masked_softmax",
        "shape": [1, 1024, 1024],
        "dtype": "float32",
        "mask": "causal",
    },
    {
        "operator": "scaled_masked_softmax",
        "shape": [1, 1024, 1024],
        "dtype": "float32",
        "mask": "padding",
    },
]
VARIANTS = {"softmax": ("warpfuse", "aten"), "scaled_masked_softmax": ("warpfuse", "chain")}
SECONDS = 60  # a process may take
HOW = (
    "Nsight Compute's dram__bytes_read.sum and dram__bytes_write.sum over the kernels of one "
    "forward call. It empties the caches before each kernel (--cache-control all), so a chain's "
    "intermediate results are read from memory even where they would have stayed in the L2 cache, "
    "and what is still in the L2 cache when a kernel ends is not counted as written."
)


def measure_traffic(json_file: Path, host: Path, ncu: str) -> None:
    """Counts for those of ROWS that the file holds; the file is rewritten after each."""
    load_bench(json_file, allow_partial=True)  # its checks
    raw = json.loads(json_file.read_text(encoding="utf-8"))
    held = {row_key(row): row for row in raw["rows"]}
    for wanted in ROWS:
        row = held.get((read_key(Fields(wanted, "row")), "forward"))
        if row is None:
            continue
        right = {variant["name"] for variant in row["variants"] if variant["status"] == "ok"}
        for variant in VARIANTS[wanted["operator"]]:
            if variant not in right:
                continue
            counted = _count(ncu, host, wanted, variant)
            _put(row, variant, counted)
            shape = "x".join(str(size) for size in wanted["shape"])
            print(
                f"traffic: {wanted['operator']} {shape} {wanted['dtype']} {variant}: "
                f"{counted.read / 1e6:.1f} MB read, {counted.written / 1e6:.1f} MB written, "
                f"{counted.kernels} kernels",
                file=sys.stderr,
            )
            raw["traffic_how"] = HOW
            write_bench(json_file, raw)


def command(ncu: str, host: Path, row: dict[str, Any], variant: str) -> list[str]:
    """One call of one variant under ncu."""
    shape = "x".join(str(size) for size in row["shape"])
    options = ["--device", "cuda", "--shapes", shape, "--dtype", row["dtype"]]
    if "mask" in row:
        options += ["--mask", row["mask"]]
    options += ["--profile", variant]
    return [
        ncu,
        "--clock-control",
        "none",
        "--cache-control",
        "all",
        "--profile-from-start",
        "off",
        "--csv",
        "--print-units",
        "base",
        "--metrics",
        f"{READ},{WRITTEN}",
        str(host),
        "bench",
        row["operator"],
        *options,
    ]


def _count(ncu: str, host: Path, row: dict[str, Any], variant: str) -> Counted:
    call = command(ncu, host, row, variant)
    try:
        done = subprocess.run(call, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReportError(f"ncu: {error}") from error
    if done.returncode != 0 and "==ERROR==" not in done.stdout:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise ReportError(f"ncu: exit code {done.returncode}: {said[-1]}")
    return parse(done.stdout)


def _put(row: dict[str, Any], variant: str, counted: Counted) -> None:
    others = [entry for entry in row.get("traffic", []) if entry["variant"] != variant]
    row["traffic"] = [
        *others,
        {
            "variant": variant,
            "dram_read_bytes": counted.read,
            "dram_write_bytes": counted.written,
            "kernels": counted.kernels,
        },
    ]
