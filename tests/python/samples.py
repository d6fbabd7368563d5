"""Inputs for every operator of the plugin: what the tests of test_operators.py call them with.

An operator that is missing here fails the test, so a new one cannot be forgotten.
"""

from dataclasses import dataclass, field, replace

import torch


@dataclass
class Sample:
    args: tuple
    kwargs: dict = field(default_factory=dict)
    # Whether autograd goes through it: all its floating tensors then require gradients.
    differentiable: bool = True
    # Whether central differences stay where the operator is defined.
    differences: bool = True
    # Whether its gradient has a gradient.
    second_order: bool = True

    def with_gradients(self):
        """The sample with fresh leaves that require gradients."""

        def leaf(value):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                return value.detach().clone().requires_grad_(self.differentiable)
            return value

        named = {name: leaf(value) for name, value in self.kwargs.items()}
        return replace(self, args=tuple(map(leaf, self.args)), kwargs=named)

    def tensors(self):
        values = (*self.args, *self.kwargs.values())
        return [value for value in values if isinstance(value, torch.Tensor) and value.requires_grad]


def without_gradients(*calls):
    return [Sample(arguments, differentiable=False) for arguments in calls]


def of_first_order(*calls):
    return [Sample(arguments, second_order=False) for arguments in calls]


def randn(*shape, device, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, device=device)


def softmax_samples(device):
    x = randn(2, 3, 5, device=device)
    calls = [(x, -1), (x, 0), (x.transpose(0, 2), 1), (randn(7, device=device), 0)]
    return [*map(Sample, calls), Sample((x, 1), {"dtype": torch.float64})]


def softmax_backward_samples(device, log=False):
    samples = []
    for dim in (-1, 0):
        x = randn(2, 3, 5, device=device)
        output = torch.log_softmax(x, dim) if log else torch.softmax(x, dim)
        samples.append(Sample((randn(2, 3, 5, device=device), output, dim)))
    return samples


def algorithm_samples(device):
    names = ["naive", "vector"]
    if device != "cpu":
        names = ["naive", "warp", "block", "stream"]
        if torch.cuda.get_device_capability()[0] >= 9:
            names.append("cluster")
    x = randn(3, 5, device=device)
    return without_gradients(*((x, -1, name, log) for name in names for log in (False, True)))


def mask_arguments(device):
    """Keyword arguments of scaled_masked_softmax for scores [2, 2, 3, 4]."""
    visible = torch.rand(2, 1, 3, 4, device=device) > 0.3
    return [
        {},
        {"scale": 0.5, "causal": "upper_left"},
        {"causal": "lower_right", "window": 2},
        {"attn_mask": visible},
        {"attn_mask": visible, "masked_value": -0.5},
        {"scale": 0.3, "attn_mask": randn(2, 1, 4, device=device)},
        {"query_positions": torch.tensor([[0, 2, -1], [3, 9, 1]], device=device)},
        {"key_lengths": torch.tensor([0, 3], dtype=torch.int32, device=device)},
    ]


def every_mask_argument(arguments):
    """The same with those that have defaults."""
    tensors = dict.fromkeys(("attn_mask", "query_positions", "key_lengths"))
    return {**tensors, "scale": 1.0, "causal": "none", "window": 0, "masked_value": None, **arguments}


def scaled_masked_softmax_samples(device):
    return [
        *(Sample((randn(2, 2, 3, 4, device=device),), arguments) for arguments in mask_arguments(device)),
        Sample((randn(3, 5, device=device), 0.5)),
        Sample((randn(2, 3, 5, device=device).transpose(1, 2),), {"causal": "lower_right"}),
    ]


def scaled_masked_softmax_backward_samples(device):
    samples = []
    for arguments in mask_arguments(device):
        if arguments.get("attn_mask") is not None and arguments["attn_mask"].is_floating_point():
            continue  # the backward operator has no gradient for the mask: nothing depends on it
        every = every_mask_argument(arguments)
        output = torch.ops.warpfuse.scaled_masked_softmax(randn(2, 2, 3, 4, device=device), **every)
        # An output is zero at hidden keys; differences would move it away from that.
        hides = bool((output == 0).any())
        samples.append(Sample((randn(2, 2, 3, 4, device=device), output), every, differences=not hides))
    return samples


LOGPROB_FORMS = ("logprob", "lse", "entropy")


def logprob_inputs(device):
    targets = torch.tensor([[0, 6, 3], [-7, 2, 2]], device=device)
    return randn(2, 3, 7, device=device), targets


def fused_logprob_samples(device):
    x, targets = logprob_inputs(device)
    return [
        *of_first_order((x, targets, -7), (x, targets.int(), -7, 0.7, True), (x[:, :-1, :5], targets[:, :-1].clamp(0, 4))),
        Sample((x[0, 0], targets[0, 0]), {"temperature": 1.5}, second_order=False),
    ]


def fused_logprob_lse_samples(device):
    x, targets = logprob_inputs(device)
    of_vocabulary = targets + 100 * (targets != -7)
    shard = Sample((x, of_vocabulary, -7), {"vocab_start": 100}, second_order=False)
    return [*fused_logprob_samples(device), shard]


def logprob_with_statistics_samples(device):
    x, targets = logprob_inputs(device)
    return without_gradients(*((x, targets, -7, 0.7, False, 0, form) for form in LOGPROB_FORMS))


def logprob_backward_samples(device):
    calls = []
    for form in LOGPROB_FORMS:
        x, targets = logprob_inputs(device)
        logprob, _, entropy, statistics = torch.ops.warpfuse._fused_logprob(x, targets, -7, 0.7, False, 0, form)
        saved = (statistics, entropy if form == "entropy" else None)
        gradients = (torch.randn_like(logprob) if each in ("logprob", form) else None for each in LOGPROB_FORMS)
        calls.append((x, targets, *saved, *gradients, -7, 0.7, 0, form))
    return without_gradients(*calls)


def deform_inputs(device, levels=((4, 3), (2, 5))):
    """value, spatial_shapes, level_start_index, sampling_locations, attention_weights"""
    shapes = torch.tensor(levels, device=device)
    pixels = shapes.prod(1)
    locations = torch.rand(2, 3, 2, len(levels), 3, 2, dtype=torch.float64, device=device)
    return (
        randn(2, int(pixels.sum()), 2, 4, device=device),
        shapes,
        pixels.cumsum(0) - pixels,
        locations * 1.4 - 0.2,
        randn(2, 3, 2, len(levels), 3, device=device),
    )


def deform_samples(device):
    return of_first_order(deform_inputs(device), (*deform_inputs(device, ((3, 3),)), True))


def deform_backward_samples(device):
    inputs = deform_inputs(device)
    grad_output = randn(2, 3, 8, device=device)
    softmax = torch.ops.warpfuse.ms_deform_attn_softmax(*inputs)
    return without_gradients((grad_output, None, *inputs), (grad_output, softmax, *inputs))


def sample_tokens_samples(device):
    x = randn(2, 3, 7, device=device)
    steps = torch.arange(6, device=device).view(2, 3)
    one = torch.tensor([3], dtype=torch.int32, device=device)
    return without_gradients(
        (x, steps),
        (x, one, 5, 0.0),
        (x[:, 1], steps[:, 1], 5, 0.7, 4, 0.9, 0.05, steps[:, 0]),
        (x[0, 0].half(), one, -1, 1.0, 0, 0.5),
    )


def linear_inputs(device, rows=(2, 3)):
    """input, weight, bias, norm_weight, norm_bias, residual"""
    shapes = ((*rows, 16), (24, 16), (24,), (16,), (16,), (*rows, 24))
    return [randn(*shape, device=device, dtype=torch.float32) for shape in shapes]


def norm_linear_samples(device):
    x, weight, bias, norm_weight, norm_bias, _ = linear_inputs(device)
    return without_gradients(
        (x, norm_weight, norm_bias, weight, bias, "layer", 1e-5, "gelu"),
        (x.half(), norm_weight.half(), None, weight.half(), None, "rms"),
        (x.repeat(1, 4, 1), norm_weight, norm_bias, weight),
    )


def linear_residual_samples(device):
    samples = []
    for rows in ((2, 3), (2, 12)):
        x, weight, bias, _, _, residual = linear_inputs(device, rows)
        samples += [(x, weight, bias, residual), (x, weight, None, residual)]
    return without_gradients(*samples)


def linear_argmax_samples(device):
    samples = []
    for rows in ((2, 3), (2, 12)):
        x, weight, bias, norm_weight, norm_bias, _ = linear_inputs(device, rows)
        samples += [(x, weight), (x, weight, bias, norm_weight, norm_bias)]
    return without_gradients(*samples)


def gpt2_step_samples(device):
    """Two layers of width 8 with two heads: one call and one with a larger batch."""

    def floats(*shape):
        return randn(*shape, device=device, dtype=torch.float32)

    samples = []
    for batch in (2, 9):
        layers = []
        for _ in range(2):
            layers += [floats(8), floats(8), floats(24, 8), floats(24), floats(8, 8), floats(8)]
            layers += [floats(8), floats(8), floats(16, 8), floats(16), floats(8, 16), floats(8)]
        ids, positions = (torch.arange(batch, device=device).view(-1, 1) % n for n in (5, 3))
        tables = floats(5, 8), floats(6, 8)
        arguments = (ids, positions, floats(2, 2, batch, 2, 6, 4), *tables, layers)
        arguments += (floats(8), floats(8), floats(5, 8), 0.5)
        samples.append(Sample(arguments, differentiable=False))
    return samples


def cached_attention_samples(device):
    calls = []
    for tokens, positions, rest in ((1, [[5], [2]], (0.5,)), (3, [[0, 1, 2], [3, 4, 5]], (0.5, 2))):
        of_tokens = [randn(2, heads, tokens, 8, device=device, dtype=torch.float32) for heads in (4, 2, 2)]
        cache = randn(2, 2, 2, 2, 6, 8, device=device, dtype=torch.float32)
        calls.append((*of_tokens, cache, 1, torch.tensor(positions, device=device), *rest))
    return without_gradients(*calls)


# --- dropout, where nothing depends on chance: with training off, or with random numbers given. The
# rest is in test_dropout.py.


def rng_on(device):
    return torch.tensor([7, 4], device=device)


def dropout_samples(device):
    x = randn(2, 3, 5, device=device)
    return [
        Sample((x, -1), {"training": False}),
        Sample((x, 0, 0.0, True)),
        Sample((x.transpose(0, 2), 1, 1.0), second_order=False),
    ]


def linear_dropout_samples(device):
    x, weight, bias = (randn(*shape, device=device) for shape in ((2, 3, 5), (4, 5), (4,)))
    return [
        Sample((x, weight, bias), {"training": False}),
        Sample((x, weight), {"dropout_p": 0.0}),
        Sample((x, weight, bias, 1.0), second_order=False),
    ]


def masked_dropout_samples(device):
    scores = randn(2, 2, 3, 4, device=device)
    return [
        Sample((scores,)),
        Sample((scores, 0.5), {"causal": "upper_left", "dropout_p": 0.3}),
        Sample((scores,), {"dropout_p": 1.0, "training": True}, second_order=False),
    ]


def dropout_with_rng_samples(device):
    x = randn(2, 3, 5, device=device)
    return of_first_order(*((x, dim, 0.3, first, rng_on(device)) for dim in (-1, 0) for first in (False, True)))


def dropout_backward_samples(device):
    samples = []
    for dim in (-1, 0):
        for softmax_first in (False, True):
            x, rng = randn(2, 3, 5, device=device), rng_on(device)
            output, statistics, _ = torch.ops.warpfuse._dropout_softmax(x, dim, 0.3, softmax_first, rng)
            saved = (x if softmax_first else output, statistics, rng)
            samples.append((randn(2, 3, 5, device=device), *saved, dim, 0.3, softmax_first))
    return without_gradients(*samples)


def linear_dropout_with_rng_samples(device):
    x, weight, bias = (randn(*shape, device=device) for shape in ((2, 3, 5), (4, 5), (4,)))
    return of_first_order(*((x, weight, given, 0.3, rng_on(device)) for given in (bias, None)))


def masked_dropout_with_rng_samples(device):
    return [
        Sample(
            (randn(2, 2, 3, 4, device=device),),
            {**every_mask_argument(arguments), "dropout_p": 0.3, "rng": rng_on(device)},
            second_order=False,
        )
        for arguments in mask_arguments(device)
    ]


def masked_dropout_backward_samples(device):
    samples = []
    for arguments in mask_arguments(device):
        every = {**every_mask_argument(arguments), "dropout_p": 0.3}
        scores, rng = randn(2, 2, 3, 4, device=device), rng_on(device)
        _, statistics, _ = torch.ops.warpfuse._scaled_masked_softmax_dropout(scores, **every, rng=rng)
        grad = randn(2, 2, 3, 4, device=device)
        samples.append(Sample((grad, scores, statistics, rng), every, differentiable=False))
    return samples


def dropout_mask_samples(device):
    return without_gradients((randn(2, 3, 5, device=device), 0.3, rng_on(device)))


TENSOR_OPERATORS = {
    "softmax": softmax_samples,
    "log_softmax": softmax_samples,
    "scaled_masked_softmax": scaled_masked_softmax_samples,
    "fused_logprob": fused_logprob_samples,
    "fused_logprob_lse": fused_logprob_lse_samples,
    "fused_logprob_entropy": fused_logprob_samples,
    "sample_tokens": sample_tokens_samples,
    "ms_deform_attn": deform_samples,
    "ms_deform_attn_softmax": deform_samples,
    "norm_linear": norm_linear_samples,
    "linear_residual": linear_residual_samples,
    "cached_attention_softmax": cached_attention_samples,
    "linear_argmax": linear_argmax_samples,
    "gpt2_step": gpt2_step_samples,
    "_ms_deform_attn_backward": deform_backward_samples,
    "_fused_logprob": logprob_with_statistics_samples,
    "_fused_logprob_backward": logprob_backward_samples,
    "_fused_logprob_backward_": logprob_backward_samples,
    "_softmax_algorithm": algorithm_samples,
    "_softmax_backward": softmax_backward_samples,
    "_log_softmax_backward": lambda device: softmax_backward_samples(device, log=True),
    "_scaled_masked_softmax_backward": scaled_masked_softmax_backward_samples,
    "dropout_softmax": dropout_samples,
    "softmax_dropout": dropout_samples,
    "linear_dropout_softmax": linear_dropout_samples,
    "scaled_masked_softmax_dropout": masked_dropout_samples,
    "_dropout_softmax": dropout_with_rng_samples,
    "_dropout_softmax_backward": dropout_backward_samples,
    "_linear_dropout_softmax": linear_dropout_with_rng_samples,
    "_scaled_masked_softmax_dropout": masked_dropout_with_rng_samples,
    "_scaled_masked_softmax_dropout_backward": masked_dropout_backward_samples,
    "_dropout_mask": dropout_mask_samples,
}

# Operators without tensors: their arguments and the type of their result.
OTHER_OPERATORS = {
    "build_info": ((), str),
    "device_info": ((), str),
    "call_count": (("softmax.cpu",), int),
    "call_counts": ((), str),
    "reset_call_counts": ((), type(None)),
    "tuning": ((), str),
    "_set_tuning": (("",), type(None)),
    "_launches": ((), str),
    "_record_launches": ((False,), type(None)),
}
