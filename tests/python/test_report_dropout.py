#!/usr/bin/env python3
"""The table of softmax with dropout in scripts/report.py."""

import math
import unittest

import synthetic_bench as made_up
from report_case import ReportCase

LAYER = (128, 16384, 16384)


def row(operator, shape, dtype, direction, **times):
    """A made-up row; ATen needs a mask beside."""
    entry = made_up.row((1024, 8192), "float32")
    memory = {"warpfuse": 16, "aten": math.prod(shape[::2]), "softmax": 0, "linear": 8}
    return entry | {
        "operator": operator,
        "shape": list(shape),
        "dtype": dtype,
        "direction": direction,
        "variants": [
            made_up.variant(name, time) | {"extra_bytes": memory[name]}
            for name, time in times.items()
        ],
        "presets": ["dropout"],
    }


class Dropout(ReportCase):
    def table(self, *rows):
        self.put_gpu(made_up.bench([*rows, made_up.row((1024, 8192), "float32")]))
        return self.block("dropout")

    def test_a_training_step_beside_the_linear_alone(self):
        of = ("linear_dropout_softmax", LAYER)
        self.table(
            row(*of, "float32", "forward", warpfuse=1600.0, aten=1700.0, linear=1590.0),
            row(*of, "float32", "both", warpfuse=4800.0, aten=5000.0, linear=4825.0),
            row(*of, "tf32", "forward", warpfuse=300.0, aten=400.0, linear=295.0),
        )
        found = self.cells("dropout", "float32")
        self.assertEqual(found["shape"], "linear_dropout_softmax [128, 16384, 16384]")
        self.assertEqual(found["pass"], "forward<br>both")
        self.assertEqual(found["alone us"], "1,590 linear<br>4,825 linear")
        self.assertEqual(found["on top us"], "+10.0<br>−25.0")
        self.assertEqual(found["MB beside"], "0.000<br>0.000")
        self.assertEqual(found["ATen"], "2.1<br>2.1")
        self.assertEqual(self.cells("dropout", "tf32")["alone us"], "295 linear")

    def test_beside_the_softmax_alone(self):
        times = {"warpfuse": 10.0, "aten": 25.0, "softmax": 8.0}
        self.table(
            row("dropout_softmax", (128, 16384), "float32", "forward", **times),
            row("softmax_dropout", (96, 1024, 1024), "bfloat16", "backward", **times),
        )
        for shape in ("dropout_softmax 128 x 16384", "softmax_dropout [96, 1024, 1024]"):
            found = self.cells("dropout", shape)
            self.assertEqual(found["speed-up"], "2.50x")
            self.assertEqual((found["alone us"], found["on top us"]), ("8.00 softmax", "+2.00"))

    def test_a_run_without_the_preset(self):
        self.assertEqual(self.table(), "Not measured in this run.")


if __name__ == "__main__":
    unittest.main()
