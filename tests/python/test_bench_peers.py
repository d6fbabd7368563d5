"""What scripts/bench_peers.py compares with: cases, masks and the check of results, on a CPU.

python test_bench_peers.py [unittest options]
"""

import itertools
import math
import subprocess
import sys
import unittest
from pathlib import Path

import made_up_runs as made_up
import torch

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from peers.cases import MASKED, Case, Rules, case_of, error_of, inputs_of, rules_of, sets_for
from peers.works import aten_call
from report.run import ReportError, Row

CPU = torch.device("cpu")
UNAVAILABLE = 3
ROWS = [
    ("softmax", (33, 1025), 1, "none"),
    ("softmax", (4, 40, 6), 1, "none"),
    (MASKED, (6, 64, 64), 2, "causal"),
    (MASKED, (2, 3, 64, 64), 3, "padding"),
    (MASKED, (1, 3, 1, 64), 3, "positions"),
]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def cases():
    for (operator, shape, dim, mask), dtype, forward in itertools.product(
        ROWS, DTYPES, (True, False)
    ):
        lengths = (5, 64) if mask == "padding" else ()
        yield Case(operator, shape, dim, dtype, mask, forward, 1.0, lengths)


class Checking(unittest.TestCase):
    def test_the_chain_is_right_and_what_differs_is_not(self):
        for case in cases():
            with self.subTest(case):
                rules = rules_of(case, CPU)
                inputs = inputs_of(case, rules, 1, CPU)[0]
                result = aten_call(case, rules)(*inputs)
                self.assertLess(error_of(case, rules, inputs, result), 0.5)
                place = result.abs().argmax()
                for wrong in (1.1, 0.0, math.nan):
                    broken = result.clone()
                    broken.view(-1)[place] *= wrong
                    error = error_of(case, rules, inputs, broken)
                    self.assertFalse(error <= 1, f"{wrong}: {error}")
                self.assertEqual(error_of(case, rules, inputs, result.double()), math.inf)
                self.assertEqual(error_of(case, rules, inputs, result[..., 1:]), math.inf)

    def test_what_is_hidden_is_zero(self):
        for case in cases():
            rules = rules_of(case, CPU)
            if rules.hidden is None:
                continue
            with self.subTest(case):
                inputs = inputs_of(case, rules, 1, CPU)[0]
                result = aten_call(case, rules)(*inputs)
                if rules.hidden.any():
                    self.assertTrue((result[rules.hidden.expand_as(result)] == 0).all())
                    shown = result.clone()
                    shown[rules.hidden.expand_as(result)] = 0.5
                    self.assertGreater(error_of(case, rules, inputs, shown), 1)


class Deformable(unittest.TestCase):
    LEVELS = ((6, 4), (3, 5))

    def test_grid_sample_is_right_in_each_dtype_and_what_differs_is_not(self):
        operators = ("ms_deform_attn", "ms_deform_attn_uniform")
        for operator, queries, dtype in itertools.product(operators, (5, 39, 1100), DTYPES):
            shape = (2, queries, 3, 8, 2)
            case = Case(operator, shape, 4, dtype, "none", True, 1.0, levels=self.LEVELS)
            with self.subTest(case):
                inputs = inputs_of(case, rules_of(case, CPU), 1, CPU)[0]
                self.assertEqual(sum(tensor.nbytes for tensor in (inputs[0], *inputs[3:])), case.input_bytes)
                self.assertEqual(inputs[2].tolist(), [0, 24])
                result = aten_call(case, rules_of(case, CPU))(*inputs)
                self.assertLess(error_of(case, Rules(), inputs, result), 0.5)
                self.assertGreater(error_of(case, Rules(), inputs, result * 1.5), 1)
                self.assertEqual(error_of(case, Rules(), inputs, result[:, 1:]), math.inf)

    def test_levels_are_part_of_a_row(self):
        raw = made_up.row((1, 5, 3, 8, 2), operator="ms_deform_attn") | {"levels": [[6, 4], [3, 5]]}
        self.assertEqual(case_of(Row(raw)).levels, self.LEVELS)
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
        hidden = rules_of(case, CPU).hidden.expand(case.shape)
        self.assertEqual(hidden.sum(-1).flatten(1).unique().tolist(), [0, 5])


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
    unittest.main()
