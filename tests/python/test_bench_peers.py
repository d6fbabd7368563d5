"""What scripts/bench_peers.py compares with: cases, masks and the check of results, on a CPU.

python test_bench_peers.py [unittest options]
"""

import itertools
import math
import subprocess
import sys
import unittest
from pathlib import Path

import torch

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from peers.cases import MASKED, Case, error_of, inputs_of, least_bytes, rules_of, sets_for
from peers.works import aten_call

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
        yield Case(operator, shape, dim, dtype, mask, forward, least_bytes=1.0)


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


class Planning(unittest.TestCase):
    def test_inputs_are_more_than_twice_the_l2(self):
        l2 = 60 << 20
        for nbytes in (100_000, l2, 2 * l2, 1 << 30):
            sets = sets_for(nbytes, l2)
            self.assertGreaterEqual(sets, 2)
            self.assertGreater(sets * nbytes, 2 * l2)

    def test_padding_moves_what_is_visible(self):
        case = Case(MASKED, (4, 2, 8, 8), 3, torch.float16, "padding", True, 1.0)
        # Lengths 1, 3, 5, 7: half of the keys; the result is written in full.
        self.assertEqual(least_bytes(case), 4 * 2 * 8 * 8 * 2 * 1.5)


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
