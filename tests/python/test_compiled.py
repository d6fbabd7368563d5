"""torch.compile with the backend that makes machine code, whose start takes longer than all of these: one operator of
each kind, dropout that is drawn again for the backward, and drawn tokens.

    WARPFUSE_PLUGIN=.../libwarpfuse.so python test_compiled.py [--device cpu|cuda] [unittest options]

Exit code 77: the device is not there.
"""

import importlib.util
import sys
import unittest

import torch
from torch.utils.checkpoint import checkpoint

import test_operators
from test_dropout import P, inputs, softmax_dropout
from test_operators import compiles_for_cpus, gradients, operator
from test_sampling import logits, sample, steps


def backends():
    """aot_eager, and inductor where it can make machine code."""
    if test_operators.DEVICE == "cuda" and importlib.util.find_spec("triton") is None:
        return ["aot_eager"]
    return ["aot_eager", "inductor"] if compiles_for_cpus() else ["aot_eager"]


class Compiled(unittest.TestCase):
    def assert_same(self, got, expected):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)

    def compiled(self, function, **options):
        """The function by each backend."""
        for backend in backends():
            torch._dynamo.reset()
            with self.subTest(backend):
                yield torch.compile(function, fullgraph=True, backend=backend, **options)

    def test_one_operator_of_each_kind(self):
        def function(x):
            results = (
                operator("softmax")(x * 2, -1),
                operator("scaled_masked_softmax")(x * 2, 0.5, causal="lower_right"),
                *operator("fused_logprob_entropy")(x * 2, torch.zeros_like(x[..., 0], dtype=torch.long)),
            )
            return torch.cat([result.flatten() + 1 for result in results])

        x = torch.randn(2, 3, 5, dtype=torch.float64, device=test_operators.DEVICE, requires_grad=True)
        for compiled in self.compiled(function, dynamic=True):
            self.assert_same(gradients(compiled, (x,)), gradients(function, (x,)))

    def test_dropout_that_is_checkpointed(self):
        # The recomputed mask must be that of the forward: the gradient then fits the output.
        kept = lambda x: checkpoint(lambda y: softmax_dropout(y.sin()).cos(), x, use_reentrant=False)
        x = inputs()
        for compiled in self.compiled(kept):
            outputs = []
            for _ in range(3):
                output = compiled(x)
                (got,) = torch.autograd.grad(output.square().sum(), x)
                leaf = x.detach().requires_grad_()
                mask = (output.detach() != 1).double() / (1 - P)  # cos(0) is what was dropped
                expected = (leaf.sin().softmax(-1) * mask).cos()
                self.assert_same(output.detach(), expected.detach())
                self.assert_same(got, torch.autograd.grad(expected.square().sum(), leaf)[0])
                outputs.append(output.detach())
            self.assertFalse(torch.equal(outputs[0], outputs[1]))

    def test_tokens_drawn_in_one_graph(self):
        def decode(x, step):
            return sample(x / 2, step, 7, 0.8, 40, 0.9, 0.01), step + 1

        for compiled in self.compiled(decode, dynamic=True):
            for rows, columns in ((2, 50), (5, 333)):
                x, step = logits(rows, columns), steps(1)
                for got, expected in zip(compiled(x, step), decode(x, step)):
                    self.assertTrue(torch.equal(got, expected))


if __name__ == "__main__":
    sys.exit(test_operators.main())
