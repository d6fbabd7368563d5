"""Every operator of the loaded plugin in Python: opcheck, gradients, torch.compile, torch.export and
activation checkpointing.

    WARPFUSE_PLUGIN=.../libwarpfuse.so python test_operators.py [--device cpu|cuda] [unittest options]

Exit code 77: the device is not there.
"""

import argparse
import os
import sys
import sysconfig
import unittest

import torch
from torch.utils.checkpoint import checkpoint

from samples import OTHER_OPERATORS, TENSOR_OPERATORS

SKIPPED = 77
DEVICE = "cpu"
OTHER_DEVICE = "for --device cuda"  # why a case is left out of the entry of the CPU


def registered_operators():
    return sorted(
        name.removeprefix("warpfuse::")
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("warpfuse::")
    )


def operator(name):
    return getattr(torch.ops.warpfuse, name).default


def samples_of(name):
    torch.manual_seed(3)
    with torch.device(DEVICE):
        return TENSOR_OPERATORS[name]()


def each_sample(differentiable_only=False, one_each=False):
    """(name, operator, sample) of every operator with tensors that is registered; of each the one with most arguments."""
    for name in registered_operators():
        if name not in TENSOR_OPERATORS:
            continue  # test_every_operator_has_samples reports it
        samples = samples_of(name)
        if one_each:
            samples = [max(samples, key=lambda sample: len(sample.args) + len(sample.kwargs))]
        for sample in samples:
            if sample.differentiable or not differentiable_only:
                yield name, operator(name), sample.with_gradients()


def with_one_result(op):
    """`op` as a function with one tensor as its result: several are joined, but for what an operator
    that draws random numbers notes beside its output, which has no gradients; where the operator
    writes its first input, that is a copy, and the result."""
    first_alias = op._schema.arguments[0].alias_info
    writes = first_alias is not None and first_alias.is_write
    draws = torch.Tag.nondeterministic_seeded in op.tags

    def function(first, *arguments, **named):
        if writes:
            first = first.clone()
        result = op(first, *arguments, **named)
        if writes:
            return first
        if isinstance(result, torch.Tensor):
            return result
        return result[0] if draws else torch.cat([part.flatten() for part in result])

    return function


def call_on_tensors(op, sample):
    """`op` as a function of the sample's differentiable tensors, and those tensors."""
    tensors = sample.tensors()

    def function(*replacements):
        new = iter(replacements)
        replace = lambda value: next(new) if any(value is t for t in tensors) else value
        return op(
            *[replace(v) for v in sample.args],
            **{name: replace(v) for name, v in sample.kwargs.items()},
        )

    return function, tensors


def gradients(function, tensors):
    output = function(*tensors)
    weight = torch.linspace(-1, 1, output.numel(), dtype=output.dtype, device=output.device)
    return output, torch.autograd.grad((output * weight.view(output.shape)).sum(), tensors)


class Operators(unittest.TestCase):
    def assert_same(self, got, expected):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12, equal_nan=True)

    def test_every_operator_has_samples(self):
        known = sorted([*TENSOR_OPERATORS, *OTHER_OPERATORS])
        self.assertEqual(registered_operators(), known, "add the operator to tests/python/samples.py")

    def test_opcheck(self):
        for name, op, sample in each_sample():
            with self.subTest(name):
                torch.library.opcheck(op, sample.args, sample.kwargs)

    def test_operators_without_tensors(self):
        for name, (arguments, result) in OTHER_OPERATORS.items():
            with self.subTest(name):
                self.assertIsInstance(operator(name)(*arguments), result)

    def test_gradients_to_second_order_of_both_modes(self):
        for name, op, sample in each_sample(differentiable_only=True):
            if not sample.differences:
                continue
            with self.subTest(name):
                function, tensors = call_on_tensors(with_one_result(op), sample)
                self.assertTrue(torch.autograd.gradcheck(function, tensors, check_forward_ad=True))
                if sample.second_order:
                    self.assertTrue(torch.autograd.gradgradcheck(function, tensors, check_fwd_over_rev=True))
                    continue
                for forward in (False, True):
                    modes = {"check_fwd_over_rev": forward, "check_rev_over_rev": not forward, "check_undefined_grad": not forward}
                    with self.assertRaisesRegex(RuntimeError, "there is no double backward"):
                        torch.autograd.gradgradcheck(function, tensors, **modes)

    def test_compile_forward_and_backward(self):
        # The other samples are traced, with gradients, by opcheck.
        for name, op, sample in each_sample(one_each=True):
            op = with_one_result(op)
            with self.subTest(name):
                torch._dynamo.reset()
                compiled_op = torch.compile(
                    lambda *a, op=op, **k: op(*a, **k).mul(2).neg(),
                    fullgraph=True,
                    dynamic=True,
                    backend="aot_eager",
                )
                eager_op = lambda *a, op=op, **k: op(*a, **k).mul(2).neg()
                if sample.differentiable:
                    function, tensors = call_on_tensors(compiled_op, sample)
                    output, grads = gradients(function, tensors)
                    eager_output, eager_grads = gradients(
                        call_on_tensors(eager_op, sample)[0], tensors
                    )
                    self.assert_same(grads, eager_grads)
                else:
                    output = compiled_op(*sample.args, **sample.kwargs)
                    eager_output = eager_op(*sample.args, **sample.kwargs)
                self.assert_same(output, eager_output)

    def test_one_compilation_serves_all_sizes(self):
        for op in (
            lambda x: torch.ops.warpfuse.softmax(x, -1),
            lambda x: torch.ops.warpfuse.log_softmax(x, 1),
            lambda x: torch.ops.warpfuse.scaled_masked_softmax(
                x, 0.5, x.new_zeros(1, x.shape[-1]), "lower_right"
            ),
            lambda x: torch.ops.warpfuse.fused_logprob(
                x, torch.zeros_like(x[..., 0], dtype=torch.long)
            ),
        ):
            torch._dynamo.reset()
            compilations = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
            compiled = torch.compile(op, fullgraph=True, dynamic=True, backend=compilations)
            for shape in ((2, 3, 5), (4, 3, 7), (5, 8, 2), (3, 9, 130)):
                x = torch.randn(shape, dtype=torch.float64, device=DEVICE)
                self.assert_same(compiled(x), op(x))
            self.assertEqual(compilations.frame_count, 1)

    def test_sizes_that_a_trace_does_not_know(self):
        x, mask = torch.randn(2, 6, 7, dtype=torch.float64, device=DEVICE)
        keep = torch.tensor([1, 0, 1, 1, 0, 1], device=DEVICE) > 0
        attention, sample = operator("scaled_masked_softmax"), operator("sample_tokens")
        for op in (
            lambda x, mask, rows: attention(x, 0.5, mask, "lower_right"),
            lambda x, mask, rows: attention(x, 0.5, mask[:, :1] > 0, masked_value=-1.0),
            lambda x, mask, rows: operator("softmax_dropout")(attention(x[None], 0.5, mask), 1, 0.0),
            lambda x, mask, rows: torch.stack(operator("fused_logprob_entropy")(x, rows)),
            lambda x, mask, rows: sample(x, rows, top_k=3, rows=rows),
        ):
            torch._dynamo.reset()
            chosen = lambda x, mask, keep, op=op: op(x[keep], mask[keep], keep.nonzero().flatten())
            with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
                compiled = torch.compile(chosen, fullgraph=True, backend="aot_eager")
                self.assert_same(compiled(x, mask, keep), chosen(x, mask, keep))

    def test_export_with_a_dynamic_batch(self):
        class Attention(torch.nn.Module):
            def forward(self, scores, lengths, mask):
                scaled = torch.ops.warpfuse.scaled_masked_softmax(
                    scores, 0.5, mask, "lower_right", key_lengths=lengths
                )
                return torch.ops.warpfuse.log_softmax(torch.ops.warpfuse.softmax(scaled, -1), 0)

        class Loss(torch.nn.Module):
            def forward(self, logits, targets):
                logprob, lse = torch.ops.warpfuse.fused_logprob_lse(logits[:, :-1], targets)
                _, entropy = torch.ops.warpfuse.fused_logprob_entropy(logits[:, :-1], targets)
                return (lse.square() * 1e-4 - logprob - entropy * 1e-2).mean(-1)

        def attention_inputs(batch):
            scores, mask = torch.randn(batch, 2, 3, 5, device=DEVICE), torch.rand(batch, 1, 1, 5, device=DEVICE) > 0.2
            return scores, torch.arange(batch, device=DEVICE) % 6, mask

        def loss_inputs(batch):
            return torch.randn(batch, 4, 33, device=DEVICE), torch.randint(0, 33, (batch, 3), device=DEVICE)

        for module, inputs, names in (
            (Attention(), attention_inputs, ("scaled_masked_softmax", "softmax", "log_softmax")),
            (Loss(), loss_inputs, ("fused_logprob_lse", "fused_logprob_entropy")),
        ):
            batch = torch.export.Dim("batch", min=2, max=64)
            program = torch.export.export(module, inputs(4), dynamic_shapes=[{0: batch}] * len(inputs(4)))
            targets = [str(node.target) for node in program.graph.nodes]
            self.assertLessEqual({f"warpfuse.{name}.default" for name in names}, set(targets))
            for size in (2, 4, 9):
                arguments = inputs(size)
                self.assert_same(program.module()(*arguments), module(*arguments))

    def test_activation_checkpointing(self):
        for name, op, sample in each_sample(differentiable_only=True):
            function, tensors = call_on_tensors(with_one_result(op), sample)
            expected = gradients(function, tensors)
            for use_reentrant in (False, True):
                with self.subTest(name, use_reentrant=use_reentrant):
                    kept = lambda *t: checkpoint(function, *t, use_reentrant=use_reentrant)
                    output = kept(*tensors)
                    weight = torch.linspace(
                        -1, 1, output.numel(), dtype=output.dtype, device=output.device
                    )
                    for tensor in tensors:
                        tensor.grad = None
                    (output * weight.view(output.shape)).sum().backward()
                    self.assert_same(output, expected[0])
                    self.assert_same(tuple(t.grad for t in tensors), expected[1])

    def test_scripting(self):
        @torch.jit.script
        def attention(scores: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            probabilities = torch.ops.warpfuse.scaled_masked_softmax(
                scores, 0.5, None, "lower_right", None, lengths
            )
            return torch.ops.warpfuse.log_softmax(torch.ops.warpfuse.softmax(probabilities, -1), 1)

        scores = torch.randn(2, 2, 3, 5, device=DEVICE)
        lengths = torch.tensor([2, 5], device=DEVICE)
        expected = torch.ops.warpfuse.scaled_masked_softmax(
            scores, 0.5, causal="lower_right", key_lengths=lengths
        )
        expected = torch.log_softmax(torch.softmax(expected, -1), 1)
        for _ in range(3):
            torch.testing.assert_close(attention(scores, lengths), expected)


def compiles_for_cpus():
    """Whether torch.compile can make machine code: it needs Python's headers."""
    return os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))


def exit_code(program):
    """The exit code of a program of tests: one case that skips itself marks the whole program as skipped, unless it is another device's."""
    if not program.result.wasSuccessful() or not program.result.testsRun:
        return 1
    reasons = [reason for _, reason in program.result.skipped if reason != OTHER_DEVICE]
    for reason in reasons:
        print(f"skipped: {reason}")
    return SKIPPED if reasons else 0


def main():
    """Runs the tests of the file that was started."""
    global DEVICE
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options, rest = parser.parse_known_args()
    DEVICE = options.device
    if DEVICE == "cuda" and not torch.cuda.is_available():
        print("skipped: no GPU")
        return SKIPPED
    if "WARPFUSE_PLUGIN" not in os.environ:
        parser.error("WARPFUSE_PLUGIN: expected the path of libwarpfuse.so")
    torch.ops.load_library(os.environ["WARPFUSE_PLUGIN"])
    if "WARPFUSE_TEST_THREADS" in os.environ:  # libtorch ignores an OMP_NUM_THREADS above the cores
        torch.set_num_threads(int(os.environ["WARPFUSE_TEST_THREADS"]))
    return exit_code(unittest.main(argv=[sys.argv[0], *rest], exit=False, verbosity=2))


if __name__ == "__main__":
    sys.exit(main())
