"""What scripts/bench_peers.py compares: cases, masks and the check of results, on a CPU.

WARPFUSE_PLUGIN=.../libwarpfuse.so python test_bench_peers.py [unittest options]
"""

import itertools
import math
import os
import subprocess
import sys
import unittest
from pathlib import Path

import made_up_runs as made_up
import torch

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from peers.cases import Case, case_of, sets_for
from peers.softmax import LOG, MASKED
from peers.works import SUITES, has_peers, suite_of
from report.run import ReportError, Row

CPU = torch.device("cpu")
UNAVAILABLE = 3
LEVELS = ((6, 4), (3, 5))
ROWS = [
    ("softmax", (33, 1025), 1, "none"),
    ("softmax", (4, 40, 6), 1, "none"),
    (LOG, (33, 1025), 1, "none"),
    (MASKED, (6, 64, 64), 2, "causal"),
    (MASKED, (6, 64, 64), 2, "none"),
    (MASKED, (2, 3, 64, 64), 3, "padding"),
    (MASKED, (1, 3, 1, 64), 3, "positions"),
    ("fused_logprob", (33, 1025), 1, "none"),
    ("ms_deform_attn", (2, 39, 3, 8, 2), 4, "none"),
    ("ms_deform_attn_uniform", (2, 1100, 3, 8, 2), 4, "none"),
]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def suites():
    for (operator, shape, dim, mask), dtype in itertools.product(ROWS, DTYPES):
        lengths = (5, 64) if mask == "padding" else ()
        levels = LEVELS if operator.startswith("ms_deform") else ()
        for direction in SUITES[operator].directions:
            yield suite_of(Case(operator, shape, dim, dtype, mask, direction, 1.0, lengths, levels), CPU)


def inputs_of(suite):
    return suite.inputs(torch.Generator().manual_seed(7))


def tensors(result):
    return result if isinstance(result, tuple) else (result,)


def with_one(result, i, changed):
    """The result with another i-th tensor."""
    found = [changed if place == i else tensor for place, tensor in enumerate(tensors(result))]
    return tuple(found) if isinstance(result, tuple) else found[0]


class Checking(unittest.TestCase):
    def test_what_is_compared_is_right_and_what_differs_is_not(self):
        for suite in suites():
            inputs = inputs_of(suite)
            calls = {name: call for name, call in suite.calls().items() if name in ("warpfuse", "aten", "chain")}
            for name, call in (calls | {"compiled": suite.to_compile()}).items():
                with self.subTest(suite.case, call=name):
                    result = call(*inputs)
                    self.assertLess(suite.error(inputs, suite.as_asked(name, result)), 0.6)
                    for i, tensor in enumerate(tensors(result)):
                        place = tensor.abs().argmax()
                        for wrong in (1.3, 0.0, math.nan):
                            broken = tensor.clone()
                            broken.view(-1)[place] *= wrong
                            error = suite.error(inputs, with_one(result, i, broken))
                            self.assertFalse(error <= 1, f"{i}: {wrong}: {error}")
                        for other in (tensor.double(), tensor[..., 1:]):
                            self.assertEqual(suite.error(inputs, with_one(result, i, other)), math.inf)

    def test_a_loss_is_the_negative(self):
        for suite in suites():
            if suite.case.operator == "fused_logprob" and suite.case.direction != "backward":
                with self.subTest(suite.case):
                    inputs = inputs_of(suite)
                    result = suite.to_compile()(*inputs)
                    loss = with_one(result, 0, -tensors(result)[0])
                    self.assertLess(suite.error(inputs, suite.as_asked("QuACK", loss)), 0.6)
                    self.assertGreater(suite.error(inputs, suite.as_asked("warpfuse", loss)), 1)

    def test_what_is_hidden_is_zero(self):
        for suite in suites():
            hidden = getattr(suite, "hidden", None)
            if hidden is None:
                continue
            with self.subTest(suite.case):
                inputs = inputs_of(suite)
                result = suite.aten()(*inputs)
                if hidden.any():
                    self.assertTrue((result[hidden.expand_as(result)] == 0).all())
                    shown = result.clone()
                    shown[hidden.expand_as(result)] = 0.5
                    self.assertGreater(suite.error(inputs, shown), 1)


class Deformable(unittest.TestCase):
    def test_input_bytes_are_those_of_value_locations_and_weights(self):
        for suite in suites():
            if suite.case.levels:
                inputs = inputs_of(suite)
                self.assertEqual(sum(tensor.nbytes for tensor in (inputs[0], *inputs[3:])), suite.input_bytes)
                self.assertEqual(inputs[2].tolist(), [0, 24])

    def test_levels_are_part_of_a_row(self):
        raw = made_up.row((1, 5, 3, 8, 2), operator="ms_deform_attn") | {"levels": [[6, 4], [3, 5]]}
        self.assertEqual(case_of(Row(raw)).levels, LEVELS)
        self.assertTrue(Row(raw).name.startswith("ms_deform_attn [1, 5, 3, 8, 2], 6 x 4, 3 x 5 "))


class Planning(unittest.TestCase):
    def test_inputs_are_more_than_twice_the_l2(self):
        l2 = 60 << 20
        for nbytes in (100_000, l2, 2 * l2, 1 << 30):
            sets = sets_for(nbytes, l2)
            self.assertGreaterEqual(sets, 2)
            self.assertGreater(sets * nbytes, 2 * l2)

    def test_a_padding_mask_is_that_of_the_run(self):
        raw = made_up.row((2, 3, 4, 8), operator=MASKED, mask="padding")
        with self.assertRaisesRegex(ReportError, "key_lengths is missing: measure ours anew"):
            case_of(Row(raw))
        case = case_of(Row(raw | {"key_lengths": [3, 8]}))
        self.assertEqual(case.least_bytes, raw["least_bytes"])
        hidden = suite_of(case, CPU).hidden.expand(case.shape)
        self.assertEqual(hidden.sum(-1).flatten(1).unique().tolist(), [0, 5])


    def test_rows_that_nobody_else_computes_are_left_out(self):
        for operator, mask, direction, taken in [
            ("softmax", "none", "backward", True), ("softmax", "none", "both", False),
            (MASKED, "causal", "forward", True), (MASKED, "additive", "forward", False),
            ("fused_logprob", "none", "both", True), ("ms_deform_attn", "none", "backward", False),
            ("linear_argmax", "none", "forward", False),
        ]:  # fmt: skip
            raw = made_up.row((33, 1025), operator=operator, mask=mask) | {"direction": direction}
            self.assertEqual(has_peers(Row(raw)), taken, raw)


class Program(unittest.TestCase):
    @unittest.skipIf(torch.cuda.is_available(), "there is a GPU")
    def test_says_what_it_misses(self):
        done = subprocess.run(
            [sys.executable, "-B", SCRIPTS / "bench_peers.py", "--plugin", "none.so"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, UNAVAILABLE, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("not measured", done.stderr)


if __name__ == "__main__":
    torch.ops.load_library(os.environ["WARPFUSE_PLUGIN"])
    unittest.main()
