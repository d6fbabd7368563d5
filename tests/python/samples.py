"""Inputs for every operator of the plugin, on torch's default device: what the tests of
test_operators.py call them with.

An operator that is missing here fails the test, so a new one cannot be forgotten.
"""

import torch

from dropout_samples import DROPOUT_OPERATORS
from sample import Sample, every_mask_argument, floats, mask_arguments, of_first_order, randn, without_gradients


def softmax_samples():
    x = randn(2, 3, 5)
    calls = [(x, -1), (x, 0), (x.transpose(0, 2), 1), (randn(7), 0)]
    return [*map(Sample, calls), Sample((x, 1), {"dtype": torch.float64})]


def softmax_backward_samples(log=False):
    function = torch.log_softmax if log else torch.softmax
    return [Sample((randn(2, 3, 5), function(randn(2, 3, 5), dim), dim)) for dim in (-1, 0)]


def algorithm_samples():
    x = randn(3, 5)
    names = ["naive", "vector"]
    if x.is_cuda:
        names = ["naive", "warp", "block", "stream"]
        names += ["cluster"] if torch.cuda.get_device_capability()[0] >= 9 else []
    return without_gradients(*((x, -1, name, log) for name in names for log in (False, True)))


def scaled_masked_softmax_samples():
    return [
        *(Sample((randn(2, 2, 3, 4),), arguments) for arguments in mask_arguments()),
        Sample((randn(3, 5), 0.5)),
        Sample((randn(2, 3, 5).transpose(1, 2),), {"causal": "lower_right"}),
    ]


def scaled_masked_softmax_backward_samples():
    samples = []
    for arguments in mask_arguments():
        if arguments.get("attn_mask") is not None and arguments["attn_mask"].is_floating_point():
            continue  # the backward operator has no gradient for the mask: nothing depends on it
        every = every_mask_argument(arguments)
        output = torch.ops.warpfuse.scaled_masked_softmax(randn(2, 2, 3, 4), **every)
        # An output is zero at hidden keys; differences would move it away from that.
        hides = bool((output == 0).any())
        samples.append(Sample((randn(2, 2, 3, 4), output), every, differences=not hides))
    return samples


LOGPROB_FORMS = ("logprob", "lse", "entropy")


def logprob_inputs():
    return randn(2, 3, 7), torch.tensor([[0, 6, 3], [-7, 2, 2]])


def fused_logprob_samples():
    x, targets = logprob_inputs()
    return [
        *of_first_order((x, targets, -7), (x, targets.int(), -7, 0.7, True), (x[:, :-1, :5], targets[:, :-1].clamp(0, 4))),
        Sample((x[0, 0], targets[0, 0]), {"temperature": 1.5}, second_order=False),
    ]


def fused_logprob_lse_samples():
    x, targets = logprob_inputs()
    of_vocabulary = targets + 100 * (targets != -7)
    return [*fused_logprob_samples(), Sample((x, of_vocabulary, -7), {"vocab_start": 100}, second_order=False)]


def logprob_with_statistics_samples():
    x, targets = logprob_inputs()
    return without_gradients(*((y, targets, -7, 0.7, False, 0, form) for form in LOGPROB_FORMS for y in (x, x.half())))


def logprob_backward_samples():
    calls = []
    for form in LOGPROB_FORMS:
        x, targets = logprob_inputs()
        logprob, _, entropy, statistics = torch.ops.warpfuse._fused_logprob(x, targets, -7, 0.7, False, 0, form)
        saved = (statistics, entropy if form == "entropy" else None)
        gradients = (torch.randn_like(logprob) if each in ("logprob", form) else None for each in LOGPROB_FORMS)
        calls.append((x, targets, *saved, *gradients, -7, 0.7, 0, form))
    return without_gradients(*calls)


def deform_inputs(levels=((4, 3), (2, 5))):
    """value, spatial_shapes, level_start_index, sampling_locations, attention_weights"""
    shapes = torch.tensor(levels)
    pixels = shapes.prod(1)
    locations = torch.rand(2, 3, 2, len(levels), 3, 2, dtype=torch.float64)
    return (
        randn(2, int(pixels.sum()), 2, 4),
        shapes,
        pixels.cumsum(0) - pixels,
        locations * 1.4 - 0.2,
        randn(2, 3, 2, len(levels), 3),
    )


def deform_samples():
    return of_first_order(deform_inputs(), (*deform_inputs(((3, 3),)), True))


def deform_backward_samples():
    inputs, grad_output = deform_inputs(), randn(2, 3, 8)
    softmax = torch.ops.warpfuse.ms_deform_attn_softmax(*inputs)
    return without_gradients((grad_output, None, *inputs), (grad_output, softmax, *inputs))


def sample_tokens_samples():
    x = randn(2, 3, 7)
    steps = torch.arange(6).view(2, 3)
    one = torch.tensor([3], dtype=torch.int32)
    return without_gradients(
        (x, steps),
        (x, one, 5, 0.0),
        (x[:, 1], steps[:, 1], 5, 0.7, 4, 0.9, 0.05, steps[:, 0]),
        (x[0, 0].half(), one, -1, 1.0, 0, 0.5),
    )


def linear_inputs(rows=(2, 3)):
    """input, weight, bias, norm_weight, norm_bias, residual"""
    return [floats(*shape) for shape in ((*rows, 16), (24, 16), (24,), (16,), (16,), (*rows, 24))]


def norm_linear_samples():
    x, weight, bias, norm_weight, norm_bias, _ = linear_inputs()
    return without_gradients(
        (x, norm_weight, norm_bias, weight, bias, "layer", 1e-5, "gelu"),
        (x.half(), norm_weight.half(), None, weight.half(), None, "rms"),
        (x.repeat(1, 4, 1), norm_weight, norm_bias, weight),
    )


def linear_residual_samples():
    samples = []
    for rows in ((2, 3), (2, 12)):
        x, weight, bias, _, _, residual = linear_inputs(rows)
        samples += [(x, weight, bias, residual), (x, weight, None, residual)]
    return without_gradients(*samples)


def linear_argmax_samples():
    samples = []
    for rows in ((2, 3), (2, 12)):
        x, weight, bias, norm_weight, norm_bias, _ = linear_inputs(rows)
        samples += [(x, weight), (x, weight, bias, norm_weight, norm_bias)]
    return without_gradients(*samples)


def gpt2_step_samples():
    """Two layers of width 8 with two heads: one call and one with a larger batch."""
    samples = []
    for batch in (2, 9):
        of_a_layer = ((8,), (8,), (24, 8), (24,), (8, 8), (8,), (8,), (8,), (16, 8), (16,), (8, 16), (8,))
        layers = [floats(*shape) for shape in 2 * of_a_layer]
        ids, positions = (torch.arange(batch).view(-1, 1) % n for n in (5, 3))
        embeddings, last = (floats(5, 8), floats(6, 8)), (floats(8), floats(8), floats(5, 8), 0.5)
        samples.append((ids, positions, floats(2, 2, batch, 2, 6, 4), *embeddings, layers, *last))
    return without_gradients(*samples)


def cached_attention_samples():
    calls = []
    for dtype, positions, rest in ((torch.float32, [[5], [2]], (0.5,)), (torch.half, [[0, 1, 2], [3, 4, 5]], (0.5, 2))):
        of_tokens = [randn(2, heads, len(positions[0]), 8, dtype=dtype) for heads in (4, 2, 2)]
        cache = randn(2, 2, 2, 2, 6, 8, dtype=dtype)
        calls.append((*of_tokens, cache, 1, torch.tensor(positions), *rest))
    return without_gradients(*calls)


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
    "_log_softmax_backward": lambda: softmax_backward_samples(log=True),
    "_scaled_masked_softmax_backward": scaled_masked_softmax_backward_samples,
    **DROPOUT_OPERATORS,
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
