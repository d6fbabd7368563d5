#!/usr/bin/env python3
"""Compares two folders that train.py wrote: the largest difference of a step's loss, and a plot of both.

    training_curves.py ATEN WARPFUSE [-o training.svg] [--within 1e-3]

Exit code 1: a step's losses differ by more than --within, or one of them is NaN.
"""

import argparse
import json
import math
import sys
from pathlib import Path


def plot(logs: list[dict], differences: list[float], out: Path) -> None:
    """The losses over the steps, and below them their differences."""
    from matplotlib import pyplot, rcParams

    rcParams.update({"svg.hashsalt": "training", "svg.fonttype": "none", "font.size": 12})
    steps = range(1, len(differences) + 1)
    figure, (losses, gap) = pyplot.subplots(2, 1, figsize=(8, 5), sharex=True, height_ratios=(3, 1), layout="constrained")
    for log, style in zip(logs, ("-", "--"), strict=True):
        losses.plot(steps, log["losses"], style, label=log["operators"]["attention"])
    gap.semilogy(steps, [max(each, 1e-9) for each in differences], color="#8c959f")
    losses.set(ylabel="loss, nats per token")
    gap.set(ylabel="difference", xlabel="step")
    losses.legend(title="attention and loss", frameon=False)
    for axes in (losses, gap):
        axes.grid(alpha=0.3)
    figure.savefig(out, metadata={"Date": None})


def main(words: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs=2, metavar="FOLDER")
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--within", type=float)
    arguments = parser.parse_args(words)
    logs = [json.loads((folder / "training_log.json").read_text(encoding="utf-8")) for folder in arguments.folders]
    first, second = (log["losses"] for log in logs)
    if len(first) != len(second) or not first:
        parser.error(f"{len(first)} steps in {arguments.folders[0]}, {len(second)} in {arguments.folders[1]}")
    differences = [abs(a - b) for a, b in zip(first, second, strict=True)]
    largest = max(differences, key=lambda each: math.inf if math.isnan(each) else each)
    print(f"largest difference of a step's loss: {largest:.2g} (step {differences.index(largest) + 1})")
    for folder, log in zip(arguments.folders, logs, strict=True):
        memory = f", {log['peak_bytes'] / 2**20:,.0f} MiB" if log["peak_bytes"] else ""
        held_out = log["curve"][-1]["held_out"]
        print(f"{folder.name}: {log['step_ms']:.1f} ms per step{memory}, held-out loss {held_out:.4f}")
    if arguments.out:
        plot(logs, differences, arguments.out)
    return 0 if arguments.within is None or largest <= arguments.within else 1


if __name__ == "__main__":
    sys.exit(main())
