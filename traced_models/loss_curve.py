#!/usr/bin/env python3
"""Draws loss_curve.svg from the training_log.json of a folder that train.py wrote."""

import json
import sys
from pathlib import Path

from matplotlib import pyplot, rcParams


def main() -> None:
    """Command line: loss_curve.py FOLDER."""
    if len(sys.argv) != 2:
        sys.exit("usage: loss_curve.py FOLDER")
    folder = Path(sys.argv[1])
    rcParams["svg.hashsalt"] = folder.name  # the same log gives the same file
    curve = json.loads((folder / "training_log.json").read_text(encoding="utf-8"))["curve"]
    steps = [point["step"] for point in curve]
    lowest = min(curve, key=lambda point: point["held_out"])
    figure, axes = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
    axes.plot(steps, [point["train"] for point in curve], label="training text (noise, dropout)")
    axes.plot(steps, [point["held_out"] for point in curve], label="held-out text")
    axes.plot(lowest["step"], lowest["held_out"], "o", color="C1", label="lowest held out")
    axes.set(xlabel="step", ylabel="loss, nats a token", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(folder / "loss_curve.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
