"""torch.func and forward-mode AD on every operator: vjp, jvp, Jacobians, Hessians, vmap and what it
makes of random operators.

    WARPFUSE_PLUGIN=.../libwarpfuse.so python test_transforms.py [--device cpu|cuda] [unittest options]

Exit code 77: the device is not there.
"""

import contextlib
import sys
import unittest

import torch
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import test_operators
from test_dropout import FUNCTIONS, P
from test_operators import call_on_tensors, each_sample, operator, samples_of, with_one_result

NO_SECOND = "there is no double backward"

# One call serves a whole batch of these; libtorch loops over it for the others.
WITH_BATCHING_RULE = """softmax log_softmax _softmax_backward _log_softmax_backward
    scaled_masked_softmax _scaled_masked_softmax_backward
    fused_logprob fused_logprob_lse fused_logprob_entropy _fused_logprob _fused_logprob_backward""".split()
RANDOM = {function.__name__: function for function in FUNCTIONS} | {
    "over dim 0": lambda x: torch.ops.warpfuse.softmax_dropout(x, 0, P)
}


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64, device=test_operators.DEVICE)


def tensor(values):
    return torch.tensor(values, device=test_operators.DEVICE)


def randn_like(tensors):
    return tuple(map(torch.randn_like, tensors))


def differentiable_calls():
    """(name, function, tensors, sample) of every sample that autograd goes through."""
    for name, op, sample in each_sample(differentiable_only=True):
        function, tensors = call_on_tensors(with_one_result(op), sample)
        yield name, function, tuple(tensor.detach() for tensor in tensors), sample


@contextlib.contextmanager
def without_the_loop():
    """vmap raises where an operator has no batching rule."""
    functorch = torch._C._functorch
    before = functorch._is_vmap_fallback_enabled()
    functorch._set_vmap_fallback_enabled(False)
    try:
        yield
    finally:
        functorch._set_vmap_fallback_enabled(before)


class Transforms(unittest.TestCase):
    def assert_same(self, got, expected):
        torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-11, equal_nan=True)

    # --- derivatives --------------------------------------------------------------------------

    def test_vjp(self):
        for name, function, tensors, _ in differentiable_calls():
            with self.subTest(name):
                output, pull = vjp(function, *tensors)
                cotangent = torch.randn_like(output)
                leaves = [tensor.clone().requires_grad_() for tensor in tensors]
                expected = torch.autograd.grad(function(*leaves), leaves, cotangent)
                self.assert_same(output, function(*tensors))
                self.assert_same(pull(cotangent), expected)

    def test_batched_gradients_of_autograd(self):
        for name, function, tensors, _ in differentiable_calls():
            with self.subTest(name):
                leaves = [tensor.clone().requires_grad_() for tensor in tensors]
                output = function(*leaves)
                pull = lambda g, **named: torch.autograd.grad(output, leaves, g, retain_graph=True, **named)
                cotangents = torch.randn(3, *output.shape, dtype=output.dtype, device=output.device)
                expected = tuple(map(torch.stack, zip(*map(pull, cotangents))))
                self.assert_same(pull(cotangents, is_grads_batched=True), expected)

    def test_jvp_is_the_transpose_of_vjp(self):
        for name, function, tensors, _ in differentiable_calls():
            with self.subTest(name):
                tangents = randn_like(tensors)
                output, pushed = jvp(function, tensors, tangents)
                self.assert_same(output, function(*tensors))
                cotangent = torch.randn_like(output)
                pulled = vjp(function, *tensors)[1](cotangent)
                self.assert_same((pushed * cotangent).sum(), sum((p * t).sum() for p, t in zip(pulled, tangents)))

    def test_one_tangent_at_a_time(self):
        for name, function, tensors, _ in differentiable_calls():
            for i in range(len(tensors)):
                tangents = [torch.zeros_like(tensor) for tensor in tensors]
                tangents[i] = torch.randn_like(tensors[i])
                expected = jvp(function, tensors, tuple(tangents))[1]
                with self.subTest(name, tensor=i), forward_ad.dual_level():
                    dual = list(tensors)
                    dual[i] = forward_ad.make_dual(tensors[i], tangents[i])
                    got = forward_ad.unpack_dual(function(*dual)).tangent
                    self.assert_same(got, expected)

    def test_hessian(self):
        mask = randn(1, 4).masked_fill(tensor([False, False, True, False]), -torch.inf)
        for function, reference in (
            (lambda x: operator("softmax")(x, -1), lambda x: x.softmax(-1)),
            (lambda x: operator("log_softmax")(x, 0), lambda x: x.log_softmax(0)),
            (lambda x: operator("scaled_masked_softmax")(x, 0.7, mask), lambda x: (x * 0.7 + mask).softmax(-1)),
        ):
            x = randn(3, 4)
            of = lambda f: lambda x: f(x).sin().sum()
            expected = torch.autograd.functional.hessian(of(reference), x)
            self.assert_same(hessian(of(function))(x), expected)
            self.assert_same(jacrev(jacrev(of(function)))(x), expected)
            self.assert_same(grad(lambda x: grad(of(function))(x).sum())(x), expected.sum((0, 1)))
        logits, targets = randn(3, 7), tensor([0, 6, 3])
        loss = lambda x: operator("fused_logprob")(x, targets).sum()
        for twice in (hessian(loss), jacrev(jacrev(loss)), jacfwd(grad(loss))):
            with self.assertRaisesRegex(RuntimeError, NO_SECOND):
                twice(logits)

    def test_jacobians(self):
        targets = tensor([0, 6, 3])
        for function in (
            lambda x: operator("softmax")(x, 0),
            lambda x: operator("log_softmax")(x, -1),
            lambda x: operator("scaled_masked_softmax")(x, 0.7, causal="lower_right"),
            lambda x: torch.stack(operator("fused_logprob_entropy")(x, targets, temperature=0.7)),
        ):
            x = randn(3, 7)
            with without_the_loop():
                forward, reverse = jacfwd(function)(x), jacrev(function)(x)
            expected = torch.autograd.functional.jacobian(function, x)
            self.assert_same(forward, expected)
            self.assert_same(reverse, expected)

    def test_half_precision_has_tangents_of_its_own_dtype(self):
        for dtype in (torch.float16, torch.bfloat16):
            x = randn(3, 8).to(dtype)
            mask = randn(3, 8).float()
            targets = tensor([0, 6, 3])
            for function, result in (
                (lambda x: operator("softmax")(x, -1), dtype),
                (lambda x: operator("scaled_masked_softmax")(x, 0.5, mask), dtype),
                (lambda x: operator("fused_logprob")(x, targets), torch.float32),
            ):
                _, tangent = jvp(function, (x,), (torch.ones_like(x),))
                self.assertEqual(tangent.dtype, result)
                self.assertLess(tangent.abs().max().item(), 0.02)  # sums do not change by offsets
            _, tangent = jvp(lambda m: operator("scaled_masked_softmax")(x, 0.5, m), (mask,), (mask,))
            self.assertEqual(tangent.dtype, dtype)

    def test_half_precision_locations_have_the_tangents_of_wide_ones(self):
        shapes = tensor([[5, 134], [60, 33]])
        pixels = shapes.prod(1)
        value, weights = randn(1, int(pixels.sum()), 2, 4), randn(1, 9, 2, 2, 3)
        locations, tangent = randn(1, 9, 2, 2, 3, 2).sigmoid(), randn(1, 9, 2, 2, 3, 2)
        for name in ("ms_deform_attn", "ms_deform_attn_softmax"):
            for dtype, allowed in ((torch.float16, 0.01), (torch.bfloat16, 0.05)):
                with self.subTest(name, dtype=dtype):

                    def pushed(to):
                        v, w, l, t = (x.to(dtype).to(to) for x in (value, weights, locations, tangent))
                        call = lambda l: operator(name)(v, shapes, pixels.cumsum(0) - pixels, l, w)
                        return jvp(call, (l,), (t,))[1]

                    expected = pushed(torch.float64)
                    difference = (pushed(dtype) - expected).abs().max() / expected.abs().max()
                    self.assertLess(difference.item(), allowed)

    def test_a_mask_that_the_backward_alone_is_given_has_no_tangent(self):
        x, mask, g = randn(3, 4), randn(3, 4), randn(3, 4)
        backward = lambda m: operator("_scaled_masked_softmax_backward")(
            g, x.softmax(-1), 0.5, m, "none", None, None, 0, None
        )
        self.assert_same(jvp(backward, (mask,), (mask,))[1], torch.zeros_like(x))

    # --- vmap ---------------------------------------------------------------------------------

    def batched_calls(self, name):
        """(op, arguments, in_dims): each sample with some of its tensors in a batch of 3."""
        for sample in samples_of(name):
            others = operator(name)._schema.arguments[len(sample.args) :]
            values = [*sample.args, *(sample.kwargs.get(each.name, each.default_value) for each in others)]
            tensors = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor)]
            for chosen in [tensors] + [[i] for i in tensors]:
                for place in (0, -1):
                    arguments, dims = list(values), [None] * len(values)
                    for i in chosen:
                        t = values[i]
                        others = (t.flip(0), t.roll(1, -1)) if t.is_floating_point() else (t, t)
                        arguments[i], dims[i] = torch.stack([t, *others], place), place
                    yield arguments, tuple(dims)

    def test_vmap_is_one_call(self):
        for name in WITH_BATCHING_RULE:
            with self.subTest(name):
                op = operator(name)
                for arguments, dims in self.batched_calls(name):
                    sample = lambda i: [a if d is None else a.select(d, i) for a, d in zip(arguments, dims)]
                    results = [op(*sample(i)) for i in range(3)]
                    with without_the_loop():
                        got = vmap(op, in_dims=dims)(*arguments)
                    if isinstance(got, torch.Tensor):
                        got, results = (got,), [(result,) for result in results]
                    for part, expected in zip(got, zip(*results)):
                        self.assert_same(part, torch.stack(expected))

    def test_vmap_of_scalars_and_empty_batches(self):
        softmax = lambda x: operator("softmax")(x, 0)
        self.assert_same(vmap(softmax)(randn(5)), torch.ones_like(randn(5)))
        self.assert_same(vmap(grad(softmax))(randn(5)), torch.zeros_like(randn(5)))
        for x in (randn(0, 4), randn(3, 0)):
            self.assertEqual(vmap(softmax)(x).shape, x.shape)
        self.assertEqual(vmap(operator("scaled_masked_softmax"))(randn(0, 2, 3)).shape, (0, 2, 3))

    def test_nested_vmap(self):
        x, lengths = randn(2, 3, 2, 4, 5), tensor([[1, 4], [5, 2], [0, 3]])
        attention = lambda s, n: operator("scaled_masked_softmax")(s, 0.5, key_lengths=n)
        with without_the_loop():
            got = vmap(vmap(attention), in_dims=(0, None))(x, lengths)
        expected = [attention(x[i, j], lengths[j]) for i in range(2) for j in range(3)]
        self.assert_same(got.flatten(0, 1), torch.stack(expected))

    def test_bad_arguments(self):
        op = operator("scaled_masked_softmax")
        with self.assertRaisesRegex(RuntimeError, r"\[Tq, Tk\], got 1 dimensions"):
            vmap(op)(randn(3, 4))
        with self.assertRaisesRegex(RuntimeError, r"targets: expected shape \[3, 2\]"):
            vmap(operator("fused_logprob"))(randn(3, 2, 4), tensor([[0] * 4] * 3))
        with self.assertRaisesRegex(IndexError, r"range of \[-2, 1\], but got 2"):
            vmap(lambda x: operator("softmax")(x, 2))(randn(3, 4, 5))

    def test_gradients_of_each_sample(self):
        targets, lengths = tensor([[0, 6], [3, -100], [1, 1]]), tensor([[3], [7], [1]])
        loss = lambda x, t: -operator("fused_logprob")(x, t).sum()
        attention = lambda x, n: operator("scaled_masked_softmax")(x, 0.5, key_lengths=n).sin().sum()
        for function, second in ((loss, targets), (attention, lengths)):
            x = randn(3, 2, 7)
            with without_the_loop():
                got = vmap(grad(function))(x, second)
            self.assert_same(got, torch.stack([grad(function)(x[i], second[i]) for i in range(3)]))

    # --- random operators ---------------------------------------------------------------------

    def test_vmap_asks_what_randomness_means(self):
        for name, function in RANDOM.items():
            message = 'vmap: expected randomness="different" or "same", got "error"'
            with self.subTest(name), self.assertRaisesRegex(RuntimeError, message):
                vmap(function)(randn(3, 6, 40))

    def test_masks_of_samples(self):
        for name, function in RANDOM.items():
            with self.subTest(name):
                x = randn(1, 6, 40).expand(3, 6, 40)
                for given, in_dim in ((x, 0), (x[0], None)):
                    call = lambda randomness: vmap(
                        lambda y, _: function(y), in_dims=(in_dim, 0), randomness=randomness
                    )(given, torch.arange(3))
                    same, different = call("same"), call("different")
                    self.assert_same(same[0], same[1])
                    self.assertFalse(torch.equal(different[0], different[1]))
                    self.assertFalse(torch.equal(different[1], different[2]))
                    self.assertFalse(torch.equal(call("same"), same))
                    self.assertFalse(torch.equal(call("different"), different))

    def test_gradients_fit_the_masks_of_samples(self):
        # The gradient that vjp returns beside the output must be that of the same mask.
        def output_and_gradient(x, g):
            output, pull = vjp(lambda x: operator("softmax_dropout")(x, -1, 0.4), x)
            return output, pull(g)[0]

        x, g = randn(3, 6, 40), randn(3, 6, 40)
        for randomness in ("same", "different"):
            output, gradient = vmap(output_and_gradient, randomness=randomness)(x, g)
            leaf = x.clone().requires_grad_()
            expected = leaf.softmax(-1) * (output != 0) / 0.6
            self.assert_same(output, expected.detach())
            self.assert_same(gradient, torch.autograd.grad(expected, leaf, g)[0])

    def test_derivatives_of_random_operators(self):
        for name, function in RANDOM.items():
            with self.subTest(name):
                x = randn(4, 9)

                def seeded(call):
                    torch.manual_seed(5)
                    return call()

                expected = seeded(lambda: torch.autograd.functional.jacobian(function, x))
                self.assert_same(seeded(lambda: jacrev(function)(x)), expected)
                tangent = torch.randn_like(x)
                pushed = seeded(lambda: jvp(function, (x,), (tangent,))[1])
                self.assert_same(pushed, (expected * tangent).sum((-2, -1)))
                forward = jacfwd(function, randomness="same")(x)
                self.assertEqual(forward.shape, expected.shape)
                with self.assertRaisesRegex(RuntimeError, NO_SECOND):
                    jacfwd(grad(lambda x: function(x).sum()), randomness="same")(x)
                with self.assertRaisesRegex(RuntimeError, NO_SECOND):
                    grad(lambda x: grad(lambda x: function(x).sum())(x).sum())(x)


if __name__ == "__main__":
    sys.exit(test_operators.main())
