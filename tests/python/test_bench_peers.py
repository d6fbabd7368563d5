"""What scripts/bench_peers.py compares: cases, masks and the check of results, on a CPU.

WARPFUSE_PLUGIN=.../libwarpfuse.so python test_bench_peers.py [unittest options]
"""

import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import made_up_runs as made_up
import test_operators
import torch

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import bench_peers
from peers.cases import Case, case_of, sets_for
from peers.dropout import DROPOUT_FIRST, MASKED_DROPOUT, SOFTMAX_FIRST, P, kept_before
from peers.softmax import LOG, MASKED
from peers.works import SUITES, calls_of, has_peers, suite_of, versions
from report.run import Bench, ReportError, Row

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
    (DROPOUT_FIRST, (33, 1025), 1, "none"),
    (DROPOUT_FIRST, (4, 40, 6), 1, "none"),
    (DROPOUT_FIRST, (4000, 3), 1, "none"),
    (SOFTMAX_FIRST, (33, 1025), 1, "none"),
    (SOFTMAX_FIRST, (4, 40, 6), 1, "none"),
    (MASKED_DROPOUT, (6, 64, 64), 2, "causal"),
    (MASKED_DROPOUT, (2, 3, 64, 64), 3, "padding"),
    ("linear_dropout_softmax", (33, 40, 257), 2, "none"),
]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def suites():
    for (operator, shape, dim, mask), dtype in itertools.product(ROWS, DTYPES):
        lengths = (5, 64) if mask == "padding" else ()
        levels = LEVELS if operator.startswith("ms_deform") else ()
        for direction in SUITES[operator].directions:
            yield suite_of(Case(operator, shape, dim, dtype, mask, direction, 1.0, lengths, levels), CPU)


def inputs_of(suite):
    torch.manual_seed(7)
    return suite.inputs(torch.Generator().manual_seed(7))


def sampling(*shape, dtype=torch.float32):
    return suite_of(Case("sample_tokens", shape, 1, dtype, "none", "forward", 1.0), CPU)


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
                        # Dropout makes zeros; and sums of a step's gradients cancel.
                        zero = [] if suite.case.forward and suite.case.operator in (SOFTMAX_FIRST, MASKED_DROPOUT) else [0.0]
                        for wrong in (2.0 if suite.case.operator == "linear_dropout_softmax" else 1.3, math.nan, *zero):
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


class Compiled(unittest.TestCase):
    """What chance takes part in, by the compiler for CPUs."""

    @unittest.skipUnless(test_operators.compiles_for_cpus(), "Python's headers are not installed")
    def test_results_are_right_and_not_the_same_again(self):
        compiled = {"linear_dropout_softmax", "sample_tokens", DROPOUT_FIRST, SOFTMAX_FIRST, MASKED_DROPOUT}
        for suite in [*suites(), sampling(33, 1025)]:
            if suite.case.operator not in compiled or suite.case.dtype != torch.float32:
                continue
            with self.subTest(suite.case), torch.no_grad():
                inputs = inputs_of(suite)
                call = calls_of(suite)["torch.compile"]
                results = [call(*inputs) for _ in range(2)]
                for result in results:
                    self.assertLess(suite.error(inputs, result), 0.6)
                first, second = (tensors(result)[0] for result in results)
                self.assertEqual(torch.equal(first, second), suite.case.direction == "backward")


class Dropped(unittest.TestCase):
    def test_another_rate_is_wrong(self):
        for suite in suites():
            if not suite.case.forward or suite.case.operator not in (DROPOUT_FIRST, SOFTMAX_FIRST, MASKED_DROPOUT):
                continue
            with self.subTest(suite.case):
                (scores,) = inputs_of(suite)
                whole = scores.double()
                for rate, right in ((0.8, True), (0.6, False), (1.0, False)):
                    factors = torch.bernoulli(torch.full_like(whole, rate)) / (1 - P)
                    if suite.dropout_first:
                        result = (whole * factors).softmax(suite.case.dim)
                    else:
                        result = suite._right(whole) * factors
                    self.assertEqual(suite.error((scores,), result.to(scores.dtype)) <= 1, right, rate)

    def test_kept_scores_show_in_their_softmax(self):
        for shape, dtype in itertools.product(((4000, 2), (2000, 3), (300, 64), (5, 4097)), DTYPES):
            scores = torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(dtype).double()
            keep = torch.rand(shape, generator=torch.Generator().manual_seed(4)) >= P
            result = (scores * keep / (1 - P)).to(dtype).double().softmax(-1).to(dtype).double()
            found = kept_before(scores, result, -1)
            wrong = (found != keep) & (scores.abs() > 0.01)
            self.assertLess(wrong.double().mean(), 1e-2, (shape, dtype))
            if shape[1] > 3:
                self.assertFalse(wrong.any(), (shape, dtype))


class Sampled(unittest.TestCase):
    def calls(self, suite):
        found = suite.calls()
        return found | {"compiled": suite.to_compile()}

    def test_tokens_are_drawn_as_often_as_they_should_be(self):
        suite = sampling(1, 200)
        logits = torch.randn(1, 200, generator=torch.Generator().manual_seed(1)) * 2
        powers = (logits.topk(50).values / 0.8).softmax(-1)
        kept = powers.masked_fill(powers.cumsum(-1) - powers >= 0.95, 0)
        due = torch.zeros(200).index_put_((logits.topk(50).indices,), kept / kept.sum()) * 20000
        many = logits.expand(20000, 200).contiguous()
        torch.manual_seed(2)
        for name, call in self.calls(suite).items():
            with self.subTest(name):
                counts = call(many, torch.zeros(1, dtype=torch.int64)).bincount(minlength=200)
                self.assertLess(((counts - due).abs() / due.clamp_min(1).sqrt()).max(), 5)

    def test_what_lies_beyond_the_cuts_is_wrong(self):
        columns = 1025
        # Of narrow logits top_k drops what top_p would keep, of wide ones top_p what top_k does.
        for dtype, (spread, place) in itertools.product(DTYPES, ((0.1, 60), (3, 49))):
            suite = sampling(33, columns, dtype=dtype)
            logits, step = inputs_of(suite)
            logits *= spread
            for name, call in self.calls(suite).items():
                tokens = call(logits, step)
                self.assertLess(suite.error((logits, step), tokens), 0.6, name)
                changed = tokens.clone()
                changed[7] = logits[7].double().argsort(descending=True)[place]
                self.assertGreater(suite.error((logits, step), changed), 1, name)
                for other in (tokens + columns, tokens - columns, tokens.int(), tokens[1:]):
                    self.assertEqual(suite.error((logits, step), other), math.inf)


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

    def test_tf32_is_float32_in_tensors(self):
        raw = made_up.row((3, 4, 5), "tf32", operator="linear_dropout_softmax")
        suite = suite_of(case_of(Row(raw)), CPU)
        self.assertTrue(torch.backends.cuda.matmul.allow_tf32)
        self.assertEqual({tensor.dtype for tensor in inputs_of(suite)}, {torch.float32})
        suite_of(case_of(Row(raw | {"dtype": "float32"})), CPU)
        self.assertFalse(torch.backends.cuda.matmul.allow_tf32)

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
            ("linear_argmax", "none", "forward", False), ("sample_tokens", "none", "forward", True),
            (DROPOUT_FIRST, "none", "backward", True), (MASKED_DROPOUT, "boolean", "forward", False),
            ("linear_dropout_softmax", "none", "both", True), ("linear_dropout_softmax", "none", "backward", False),
        ]:  # fmt: skip
            raw = made_up.row((33, 1025), operator=operator, mask=mask) | {"direction": direction}
            self.assertEqual(has_peers(Row(raw)), taken, raw)


class Program(unittest.TestCase):
    def test_presets_without_a_row_are_an_error(self):
        raw = made_up.bench([made_up.row((33, 1025)) | {"presets": ["odd"]}])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.json"
            path.write_text(json.dumps(raw), encoding="utf-8")
            bench = Bench(path)
        self.assertEqual(bench_peers.chosen(bench, "table,odd"), bench.rows)
        with self.assertRaisesRegex(ReportError, "no row with peers of the presets table$"):
            bench_peers.chosen(bench, "table")

    def test_says_what_it_misses(self):
        done = subprocess.run(
            [sys.executable, "-B", SCRIPTS / "bench_peers.py", "--plugin", "none.so"],
            env=os.environ | {"CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, UNAVAILABLE, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("not measured", done.stderr)

    def test_a_peer_that_is_not_whole_has_no_bare_version(self):
        with (
            unittest.mock.patch("importlib.metadata.version", return_value="1.0"),
            unittest.mock.patch("peers.works.installed", lambda module: None if module == "quack" else module),
        ):
            found = versions()
        self.assertEqual(found["triton"], "1.0")
        self.assertEqual(found["quack-kernels"], "1.0, which cannot be imported")


if __name__ == "__main__":
    torch.ops.load_library(os.environ["WARPFUSE_PLUGIN"])
    sys.exit(test_operators.exit_code(unittest.main(exit=False)))
