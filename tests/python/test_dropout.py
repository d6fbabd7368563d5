"""The operators with dropout in Python, where chance takes part: seeds, masks, checkpointing and
torch.compile; what is saved for the backward; CUDA graphs.

    WARPFUSE_PLUGIN=.../libwarpfuse.so python test_dropout.py [--device cpu|cuda] [unittest options]

Exit code 77: the device is not there.
"""

import sys
import unittest

import torch
from torch.utils.checkpoint import checkpoint

import test_operators
from test_operators import gradients

P = 0.4


def softmax_dropout(x):
    return torch.ops.warpfuse.softmax_dropout(x, -1, P, True)


def dropout_softmax(x):
    return torch.ops.warpfuse.dropout_softmax(x, -1, P, True)


def attention(x):
    return torch.ops.warpfuse.scaled_masked_softmax_dropout(
        x, 0.5, None, "lower_right", dropout_p=P, training=True
    )


def linear(x):
    weight = torch.linspace(-1, 1, 24 * x.shape[-1], dtype=x.dtype, device=x.device).view(24, -1)
    return torch.ops.warpfuse.linear_dropout_softmax(x, weight, None, P, True)


FUNCTIONS = (dropout_softmax, softmax_dropout, attention, linear)


def inputs():
    torch.manual_seed(1)
    return torch.randn(6, 33, dtype=torch.float64, device=test_operators.DEVICE, requires_grad=True)


def seeded(function, x, seed=5):
    """Output and gradient of a call after torch.manual_seed."""
    torch.manual_seed(seed)
    output, (gradient,) = gradients(function, (x,))
    return output.detach(), gradient


def captured(call):
    """A call in a CUDA graph, and what it gives."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        return graph, call()


class Dropout(unittest.TestCase):
    def assert_same(self, got, expected):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)

    def assert_other(self, got, expected):
        self.assertFalse(torch.equal(got, expected))

    def test_a_seed_repeats_output_and_gradient_and_no_two_calls_are_alike(self):
        over_dim_0 = lambda softmax_first: lambda x: torch.ops.warpfuse._dropout_softmax(x, 0, P, softmax_first)[0]
        for function in (*FUNCTIONS, over_dim_0(False), over_dim_0(True)):
            with self.subTest(function.__name__):
                x = inputs()
                first, again = seeded(function, x), seeded(function, x)
                self.assertTrue(torch.equal(first[0], again[0]))
                self.assert_same(first[1], again[1])
                self.assert_other(first[0], seeded(function, x, seed=6)[0])
                self.assert_other(function(x), function(x))

    def test_checkpointing_draws_the_same_mask_again(self):
        for function in FUNCTIONS:
            for use_reentrant in (False, True):
                with self.subTest(function.__name__, use_reentrant=use_reentrant):
                    kept = lambda x: checkpoint(function, x, use_reentrant=use_reentrant)
                    x = inputs()
                    torch.manual_seed(5)
                    output = kept(x)
                    weight = torch.linspace(-1, 1, output.numel(), dtype=x.dtype, device=x.device)
                    (output * weight.view(output.shape)).sum().backward()
                    self.assert_same((output.detach(), x.grad), seeded(function, x))

    def test_compiled(self):
        for function in FUNCTIONS:
            with self.subTest(function.__name__):
                torch._dynamo.reset()
                compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
                x = inputs()
                self.assert_same(seeded(compiled, x), seeded(function, x))
                first, second = compiled(x), compiled(x)
                self.assert_other(first, second)

    def test_no_mask_and_no_second_copy_of_the_logits_is_saved(self):
        x = torch.randn(64, 1024, device=test_operators.DEVICE, requires_grad=True)
        weight = torch.randn(1024, 1024, device=test_operators.DEVICE, requires_grad=True)
        rows = 64 * 1024 * 4
        for function, most in (
            (lambda: torch.ops.warpfuse.dropout_softmax(x, -1, P), rows),
            (lambda: torch.ops.warpfuse.softmax_dropout(x, -1, P), rows + 64 * 8),
            (
                lambda: torch.ops.warpfuse.scaled_masked_softmax_dropout(
                    x, dropout_p=P, training=True
                ),
                rows + 64 * 8,
            ),
            # The input and the weight, which are there anyway, and the output.
            (
                lambda: torch.ops.warpfuse.linear_dropout_softmax(x, weight, None, P),
                2 * rows + 1024 * 1024 * 4,
            ),
        ):
            saved = []
            with torch.autograd.graph.saved_tensors_hooks(
                lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor
            ):
                output = function()
            output.sum().backward()
            self.assertLessEqual(sum(tensor.nbytes for tensor in saved), most + 16)
            self.assertTrue(saved)

    def test_autocast_and_checkpoint(self):
        x = torch.randn(6, 33, device=test_operators.DEVICE, requires_grad=True)
        weight = torch.randn(24, 33, device=test_operators.DEVICE, requires_grad=True)
        call = lambda: torch.ops.warpfuse.linear_dropout_softmax(x, weight, None, P)
        with torch.autocast(test_operators.DEVICE, torch.bfloat16):
            output = checkpoint(call, use_reentrant=False)
        self.assertEqual(output.dtype, torch.bfloat16)
        output.float().square().sum().backward()
        self.assertEqual(x.grad.dtype, torch.float32)
        self.assertEqual(weight.grad.dtype, torch.float32)

    def test_each_replay_of_a_cuda_graph_draws_another_mask(self):
        if test_operators.DEVICE != "cuda":
            self.skipTest(test_operators.OTHER_DEVICE)
        for function in FUNCTIONS:
            with self.subTest(function.__name__):
                x = inputs().detach()
                graph, outputs = captured(lambda: (function(x), function(x)))
                # Torch writes seed and offset as a capture begins, on its stream, and a replay
                # does so on this one.
                torch.cuda.synchronize()
                seen = []
                torch.manual_seed(7)
                for _ in range(3):
                    graph.replay()
                    seen += [output.clone() for output in outputs]
                for i, output in enumerate(seen):
                    for other in seen[:i]:
                        self.assert_other(output, other)
                # As the same calls without a graph.
                torch.manual_seed(7)
                for output in seen:
                    self.assert_same(output, function(x))

    def test_a_training_step_in_a_cuda_graph(self):
        if test_operators.DEVICE != "cuda":
            self.skipTest(test_operators.OTHER_DEVICE)
        x = inputs()

        def step():
            output = softmax_dropout(x)
            (gradient,) = torch.autograd.grad(output.square().sum(), x)
            return output, gradient

        graph, (output, gradient) = captured(step)
        for _ in range(3):
            graph.replay()
            leaf = x.detach().requires_grad_()
            expected = leaf.softmax(-1) * (output != 0).double() / (1 - P)
            self.assert_same(output.detach(), expected.detach())
            self.assert_same(gradient, torch.autograd.grad(expected.square().sum(), leaf)[0])


if __name__ == "__main__":
    sys.exit(test_operators.main())
