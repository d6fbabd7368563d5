#!/usr/bin/env python3
"""Times public implementations beside the plugin, in one run and in one way, on this GPU.

    bench_peers.py --plugin build/release/lib/libwarpfuse.so

Takes the workloads of docs/benchmarks/<gpu>.json, or of any file of `warpfuse bench --json` (--rows), and writes
docs/benchmarks/<gpu>-peers.json, which scripts/report.py puts into docs/benchmarks/<gpu>.md. Peers are
ATen (its chain of kernels where there is a mask or dropout; grid_sample for ms_deform_attn), torch.compile of the same in its
default and max-autotune modes, a Triton kernel after Triton's tutorial, and where they are installed Liger-Kernel, QuACK and
Hugging Face's processors of logits (`pip install liger-kernel==0.8.5 'quack-kernels[cu13]==0.6.5' transformers`). Each result
is compared with float64 before it is timed; the file is rewritten after each row. Exit code 1: a result was wrong; 2: unusable
input; 3: there is no GPU, or torch.compile has no Triton or C compiler.
"""

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

from report.run import BENCH, Bench, ReportError, Row, file_name, write

ROOT = Path(__file__).resolve().parent.parent
WRONG, USAGE, UNAVAILABLE = 1, 2, 3


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plugin", type=Path, required=True, help="libwarpfuse.so")
    parser.add_argument("--rows", type=Path, help="a run of ours; default: docs/benchmarks/<gpu>.json")
    parser.add_argument("--presets", default="", help="only rows of these presets, such as table,logprob")
    parser.add_argument("--commit", help="what to name as the plugin's (default: git's)")
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    return parser.parse_args()


def missing() -> str:
    """What keeps the peers from running here; empty if nothing does."""
    try:
        import torch
        import triton
    except ImportError as error:
        return f"{error.name} is not installed"
    if not torch.cuda.is_available():
        return "there is no GPU"
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        return f"Triton {triton.__version__} needs a C compiler"
    return ""


def commit() -> str:
    """Of the working tree."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def chosen(bench: Bench, names: str) -> list[Row]:
    """The rows of these presets that have peers."""
    from peers.works import has_peers

    presets = set(filter(None, names.split(",")))
    rows = [row for row in bench.rows if (not presets or presets.intersection(row.presets)) and has_peers(row)]
    if not rows:
        raise ReportError(f"{bench.path}: no row with peers" + f" of the presets {names}" * bool(names))
    return rows


def measure_all(arguments: argparse.Namespace, bench: Bench, path: Path) -> int:
    """All rows; the file is there after the first."""
    from peers.run import compile_ahead, effort, header, measure, start
    from peers.timing import Timer

    rows = chosen(bench, arguments.presets)
    start(arguments.plugin)
    started = time.monotonic()
    compile_ahead(rows, arguments.plugin)
    print(f"compiled ahead in {time.monotonic() - started:.0f} s", file=sys.stderr)
    timer = Timer(effort(arguments.quick))
    raw = header(arguments.commit or commit(), "scripts/bench_peers.py" + " --quick" * arguments.quick, timer)
    wrong = False
    for number, row in enumerate(rows, 1):
        raw["rows"].append(measure(row, timer, raw["large_copy"]["gb_per_s"]))
        raw["complete"] = number == len(rows)
        write(path, raw)
        times = []
        for variant in raw["rows"][-1]["variants"]:
            value = f"{variant['p50_us']:.1f}" if "p50_us" in variant else variant["status"]
            wrong = wrong or variant["status"] == "wrong"
            times.append(f"{variant['name']} {value}")
        seconds = time.monotonic() - started
        print(f"{number}/{len(rows)} {seconds:.0f} s {row.name}: {', '.join(times)}", file=sys.stderr)
    return WRONG if wrong else 0


def main() -> int:
    """One line on stderr for every failure."""
    arguments = parse_arguments()
    if reason := missing():
        print(f"bench_peers.py: not measured: {reason}", file=sys.stderr)
        return UNAVAILABLE
    import torch

    folder = ROOT / "docs" / "benchmarks"
    name = file_name({"format": BENCH, "device": {"name": torch.cuda.get_device_name()}})
    path = folder / name.replace(".json", "-peers.json")
    try:
        bench = Bench(arguments.rows or folder / name, allow_partial=True)
        return measure_all(arguments, bench, path)
    except (ReportError, OSError) as error:
        print(f"bench_peers.py: error: {error}", file=sys.stderr)
        return USAGE


if __name__ == "__main__":
    sys.exit(main())
