#!/usr/bin/env python3
"""Training with the plugin's attention and loss beside ATen's, with a tiny model on the CPU."""

import contextlib
import io
import json
import math
import unittest
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from test_support import main, require_plugin  # first: it may skip the whole file

# isort: split
from train import How, Run, train, write_log
from train_config import TrainConfig
from train_data import IGNORE, Stream
from training_curves import main as compare

CPU = torch.device("cpu")
STEPS = 200


def stream(length: int, vocabulary: int, seed: int) -> Stream:
    """Tokens that follow one another by a rule, broken one time in ten; some targets are left out."""
    generator = torch.Generator().manual_seed(seed)
    ids = [0]
    for jump in torch.rand(length - 1, generator=generator):
        ids.append(int(jump * vocabulary * 10) % vocabulary if jump < 0.1 else (ids[-1] * 5 + 3) % vocabulary)
    tokens = torch.tensor(ids)
    targets = tokens.clone()
    targets[::7] = IGNORE
    return Stream(tokens, targets, length, length)


def run(operators: str, evaluated: Callable[[Run], None] = lambda run: None, **settings: float) -> Run:
    config = TrainConfig(vocab_size=64, context=48, layers=2, heads=2, width=32, batch=4, warmup=20, unlikelihood=0.0)
    for name, value in ({"steps": STEPS, "evaluate_every": STEPS} | settings).items():
        setattr(config, name, value)
    return train(config, stream(4000, 64, 0), stream(500, 64, 1), How(CPU, operators, operators), evaluated)


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        require_plugin()

    def test_each_loss_is_aten_s(self) -> None:
        aten, ours = (run(operators, dropout=0.0) for operators in ("aten", "warpfuse"))
        self.assertEqual(len(ours.losses), STEPS)
        self.assertLess(ours.losses[-1], ours.losses[0] - 1)  # it learns
        for step, (a, b) in enumerate(zip(aten.losses, ours.losses, strict=True)):
            self.assertLess(abs(a - b), 1e-3, step)
        self.assertAlmostEqual(ours.curve[-1]["held_out"], aten.curve[-1]["held_out"], delta=1e-3)

    def test_with_dropout(self) -> None:
        aten, ours, dry = (run(operators, dropout=p) for operators, p in (("aten", 0.2), ("warpfuse", 0.2), ("warpfuse", 0.0)))
        self.assertNotEqual(ours.losses, dry.losses)  # it drops
        self.assertLess(ours.losses[-1], ours.losses[0] - 1)  # and learns
        self.assertLess(abs(ours.curve[-1]["held_out"] / aten.curve[-1]["held_out"] - 1), 0.1)

    def test_with_the_other_losses(self) -> None:
        aten, ours = (run(name, dropout=0.0, unlikelihood=0.5, label_smoothing=0.1, steps=5) for name in ("aten", "warpfuse"))
        self.assertLess(max(abs(a - b) for a, b in zip(aten.losses, ours.losses, strict=True)), 1e-3)

    def test_an_interrupted_run_leaves_its_losses(self) -> None:
        with TemporaryDirectory() as name:
            folder, logs = Path(name), []

            def evaluated(so_far: Run) -> None:
                write_log(folder, {"torch": "2"}, so_far)
                logs.append(json.loads((folder / "training_log.json").read_text(encoding="utf-8")))
                if len(logs) == 2:
                    raise KeyboardInterrupt

            with self.assertRaises(KeyboardInterrupt):
                run("aten", evaluated, steps=30, evaluate_every=10)
            self.assertEqual([len(log["losses"]) for log in logs], [10, 20])
            self.assertEqual([point["step"] for point in logs[1]["curve"]], [10, 20])
            self.assertEqual(logs[1]["losses"][:10], logs[0]["losses"])
            self.assertEqual([path.name for path in folder.iterdir()], ["training_log.json"])


class Curves(unittest.TestCase):
    def test_runs_that_differ(self) -> None:
        def code(first: list[float], second: list[float]) -> int:
            with TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()) as said:
                folders = [Path(name) / each for each in ("aten", "warpfuse")]
                for folder, losses in zip(folders, (first, second), strict=True):
                    folder.mkdir()
                    log = {"losses": losses, "curve": [{"held_out": 2.0}], "step_ms": 1.0, "peak_bytes": None}
                    (folder / "training_log.json").write_text(json.dumps(log), encoding="utf-8")
                found = compare([*map(str, folders), "--within", "0.1"])
            self.assertIn("(step 2)", said.getvalue())
            return found

        self.assertEqual(code([3.0, 2.0, 1.0], [3.0, 2.0625, 1.0]), 0)
        self.assertEqual(code([3.0, 2.0, 1.0], [3.0, 2.25, 1.0]), 1)
        self.assertEqual(code([3.0, 2.0, 1.0], [3.0, math.nan, 1.0]), 1)


if __name__ == "__main__":
    main()
