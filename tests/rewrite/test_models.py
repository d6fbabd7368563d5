#!/usr/bin/env python3
"""Models of public classes, traced with random weights and rewritten by `warpfuse rewrite`: what became
of each softmax, and whether the results are those of the trace at other lengths and batches.

Needs WARPFUSE_HOST and WARPFUSE_PLUGIN. Exit code 77: transformers is not installed."""

import sys
import unittest
import warnings
from pathlib import Path

import torch
from rewrite_case import RewriteCase, folder, run_with_plugin

try:
    import transformers
except ImportError:
    print("skipped: transformers is not installed")
    sys.exit(77)

from public_models import (  # noqa: E402
    OwnAttention,
    ShiftedWindows,
    bert,
    dialect_of_megatron,
    dialect_of_transformers_4,
    gpt2,
    ids,
    mask,
    swin,
    t5,
    vit,
)

warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()
ATTENTION, SOFTMAX = "warpfuse::scaled_masked_softmax", "warpfuse::softmax"


class Models(RewriteCase):
    def at_lengths(self, *more: object) -> None:
        for batch in (1, 3):
            for length in (1, 2, 7, 40, 64):
                tensors = [each(batch, length) for each in more]
                with self.subTest(batch=batch, length=length):
                    self.assert_equal(ids(batch, length), *tensors)

    def test_gpt2(self) -> None:
        calls = self.rewrite(gpt2("input_ids"), (ids(2, 7),), "--require", "2")
        self.assert_routed(calls, *[(ATTENTION, "causal")] * 2)
        self.assertEqual(calls[1]["module"], "model.transformer.1.attn")
        self.assertIn("modeling_gpt2.py:", calls[1]["source"])
        graph = str(self.rewritten.inlined_graph)
        for gone in ("cumsum", "diff", "where"):  # the mask's construction
            self.assertNotIn(f"aten::{gone}", graph)
        self.at_lengths()
        self.assert_equal(ids(1, 65))  # longer than the positions: an error
        frozen = torch.jit.freeze(self.rewritten.eval())
        tokens = ids(2, 9)
        torch.testing.assert_close(frozen(tokens), self.traced(tokens), rtol=1e-4, atol=1e-5)

    def test_gpt2_with_padding(self) -> None:
        model = gpt2("input_ids", "attention_mask")
        calls = self.rewrite(model, (ids(2, 7), mask(2, 7, True)))
        self.assert_routed(calls, *[(ATTENTION, "additive")] * 2)
        self.at_lengths(lambda batch, length: mask(batch, length, True))
        self.assert_equal(ids(2, 4), mask(2, 6, True))  # a mask of another length

    def test_gpt2_with_sdpa(self) -> None:
        calls = self.rewrite(gpt2("input_ids", attention="sdpa"), (ids(2, 7),))
        self.assertEqual(calls, [])
        self.assertEqual(self.report["sdpa_calls"], 2)
        model = gpt2("input_ids", "attention_mask", attention="sdpa")  # an additive mask
        self.assertEqual(self.rewrite(model, (ids(2, 7), mask(2, 7, True))), [])
        self.assertEqual(self.report["sdpa_calls"], 2)
        result = run_with_plugin("rewrite", folder / "before.pt", "--dry-run", "--require", "1")
        self.assertEqual(result.stdout.decode(), "0 of 2: exported with SDPA, nothing to gain\n")
        self.assertEqual(result.returncode, 1)

    def test_dialect_of_transformers_4(self) -> None:
        calls = self.rewrite(OwnAttention(dialect_of_transformers_4), (ids(2, 7),))
        self.assert_routed(calls, (ATTENTION, "causal"))
        # The square root of 8 divides: no product equals that, so it stays.
        self.assertIn("no product equals", calls[0]["note"])
        self.at_lengths()

    def test_kept_file_of_transformers_4(self) -> None:
        calls = self.rewrite_file(Path(__file__).with_name("transformers_4.pt"), "--require", "2")
        self.assert_routed(calls, *[(ATTENTION, "causal")] * 2)
        self.assertEqual({call["form"] for call in calls}, {"div, where, softmax"})
        self.assertNotIn("aten::where", str(self.rewritten.inlined_graph))
        self.at_lengths()
        self.assert_equal(ids(1, 65))  # longer than the positions: an error

    def with_left_padding(self, apply: object) -> list[dict]:
        example = (ids(2, 7), mask(2, 7, True))
        calls = self.rewrite(OwnAttention(apply), example, "--input", "B,T", "--input", "B,T")
        self.at_lengths(lambda batch, length: mask(batch, length, True))
        return calls

    def test_left_padding_of_transformers_4(self) -> None:
        calls = self.with_left_padding(dialect_of_transformers_4)
        # The causal fill stays, beside which keys of padding count in rows that see nothing else.
        self.assert_routed(calls, (ATTENTION, "additive"))
        self.assertIn("a finite fill hides", calls[0]["note"])

    def test_left_padding_of_megatron(self) -> None:
        self.assert_routed(self.with_left_padding(dialect_of_megatron), (ATTENTION, "boolean, filled"))

    def test_megatron(self) -> None:
        calls = self.rewrite(OwnAttention(dialect_of_megatron), (ids(2, 7),))
        self.assert_routed(calls, (ATTENTION, "boolean, filled"))
        self.at_lengths()

    def test_bert(self) -> None:
        example = (ids(2, 7), mask(2, 7, False))
        calls = self.rewrite(bert(), example, "--input", "B,T", "--input", "B,T")
        self.assert_routed(calls, *[(ATTENTION, "additive")] * 2)
        self.at_lengths(lambda batch, length: mask(batch, length, False))
        calls = self.rewrite(bert(), example)
        self.assert_routed(calls, *[(ATTENTION, "additive")] * 2)
        for left in (False, True):
            self.at_lengths(lambda batch, length, left=left: mask(batch, length, left))

    def test_t5(self) -> None:
        calls = self.rewrite(t5(), (ids(2, 7), ids(2, 5)), "--input", "B,T", "--input", "B,U")
        additive, both = (ATTENTION, "additive"), (ATTENTION, "causal + additive")
        self.assert_routed(calls, additive, additive, both, additive, both, additive)
        self.at_lengths(lambda batch, length: ids(batch, max(1, length // 2)))
        calls = self.rewrite(t5(), (ids(2, 7), ids(2, 5)))
        self.assert_routed(calls, *[additive] * 6)
        self.at_lengths(lambda batch, length: ids(batch, max(1, length // 2)))

    def test_vit(self) -> None:
        calls = self.rewrite(vit(), (torch.randn(2, 3, 32, 32),))
        self.assert_routed(calls, *[(ATTENTION, "none")] * 2)
        for batch in (1, 2, 5):
            self.assert_equal(torch.randn(batch, 3, 32, 32))

    def test_swin(self) -> None:
        calls = self.rewrite(swin(), (torch.randn(2, 3, 32, 32),))
        self.assert_routed(calls, *[(ATTENTION, "additive")] * 4)
        for batch in (1, 2, 5):
            self.assert_equal(torch.randn(batch, 3, 32, 32))

    def test_shifted_windows_of_transformers_4(self) -> None:
        for keep in (False, True):
            calls = self.rewrite(ShiftedWindows(keep), (torch.randn(2, 8, 8, 16),))
            self.assert_routed(calls, (ATTENTION, "additive"))
            self.assertEqual(calls[0]["form"], "add, view, add, view, softmax")
            self.assertEqual(calls[0]["note"], "")
            for batch in (1, 2, 5):
                self.assert_equal(torch.randn(batch, 8, 8, 16))
            self.assert_equal(torch.randn(2, 16, 8, 16))  # more windows

    def test_a_gpt2_that_was_half_precision(self) -> None:
        calls = self.rewrite(gpt2("input_ids").to(torch.bfloat16), (ids(2, 7),))
        self.assert_routed(calls, *[(ATTENTION, "causal")] * 2)
        tokens = ids(2, 9)
        expected, got = self.traced(tokens), self.rewritten(tokens)
        self.assertEqual(got.dtype, expected.dtype)
        self.assertLess((got - expected).abs().max() / expected.abs().max(), 2e-2)


if __name__ == "__main__":
    unittest.main()
