"""sample_tokens in Python: beside Hugging Face's logits processors, exported and frozen.

    WARPFUSE_PLUGIN=.../libwarpfuse.so python test_sampling.py [--device cpu|cuda] [unittest options]

Exit code 77: the device is not there.
"""

import importlib.util
import sys
import unittest

import torch

import test_operators


def sample(*arguments, **named):
    return torch.ops.warpfuse.sample_tokens(*arguments, **named)


def steps(*shape):
    count = torch.Size(shape).numel()
    return torch.arange(count, device=test_operators.DEVICE).view(shape)


def logits(rows, columns, dtype=torch.float32):
    torch.manual_seed(5)
    return torch.randn(rows, columns).mul(2).to(dtype).to(test_operators.DEVICE)


class Sampling(unittest.TestCase):
    def test_keeps_what_hugging_face_keeps(self):
        if importlib.util.find_spec("transformers") is None:
            self.skipTest("transformers is not installed")
        from transformers import (
            MinPLogitsWarper,
            TemperatureLogitsWarper,
            TopKLogitsWarper,
            TopPLogitsWarper,
        )

        x, draws = logits(6, 400), 6000
        for temperature, top_k, top_p, min_p in (
            (1.0, 30, 1.0, 0.0),
            (0.7, 0, 0.8, 0.0),
            (3.0, 0, 0.5, 0.0),
            (1.5, 0, 1.0, 0.1),
            (2.0, 25, 0.9, 0.0),
            (2.0, 40, 0.9, 0.05),
            (4.0, 60, 0.95, 0.2),
        ):
            with self.subTest(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p):
                scores = TemperatureLogitsWarper(temperature)(None, x)
                if top_k:
                    scores = TopKLogitsWarper(top_k)(None, scores)
                if top_p < 1:
                    scores = TopPLogitsWarper(top_p)(None, scores)
                if min_p:
                    scores = MinPLogitsWarper(min_p)(None, scores)
                tokens = sample(
                    x.expand(draws, *x.shape), steps(draws, 6), 3, temperature, top_k, top_p, min_p
                )
                counts = torch.zeros(6, 400, device=x.device)
                counts.scatter_add_(1, tokens.T, torch.ones_like(tokens.T, dtype=torch.float32))
                due = scores.softmax(-1) * draws
                self.assertFalse((counts.gt(0) & scores.isinf()).any())
                self.assertFalse((counts.eq(0) & due.gt(20)).any())
                spread = (counts - due).abs() / due.clamp(min=1).sqrt()
                self.assertLess(spread[due.gt(20)].max().item(), 5.5)

    def test_exported_with_a_dynamic_batch(self):
        class Head(torch.nn.Module):
            def forward(self, x, step, names):
                return sample(x, step, 7, 0.8, top_p=0.9, rows=names)

        batch = torch.export.Dim("batch", min=2, max=64)
        shapes = [{0: batch}, None, {0: batch}]
        arguments = lambda rows: (logits(rows, 77), steps(1), steps(rows) + 3)
        program = torch.export.export(Head(), arguments(4), dynamic_shapes=shapes)
        for rows in (2, 4, 9):
            got = program.module()(*arguments(rows))
            self.assertTrue(torch.equal(got, Head()(*arguments(rows))))

    def test_frozen_module_still_draws(self):
        class Head(torch.nn.Module):
            def forward(self, x, step):
                return torch.ops.warpfuse.sample_tokens(x, step, 7)

        frozen = torch.jit.freeze(torch.jit.trace(Head().eval(), (logits(3, 77), steps(1))))
        for step in range(5):
            arguments = logits(3, 77), steps(1) + step
            self.assertTrue(torch.equal(frozen(*arguments), sample(*arguments, 7)))


if __name__ == "__main__":
    sys.exit(test_operators.main())
