"""Inputs for the operators with dropout where nothing depends on chance: with training off, or with
random numbers given. The rest is in test_dropout.py.
"""

import torch

from sample import Sample, every_mask_argument, mask_arguments, of_first_order, randn, without_gradients


def rng():
    return torch.tensor([7, 4])


def linear_dropout_inputs():
    """input, weight, bias"""
    return randn(2, 3, 5), randn(4, 5), randn(4)


def dropout_samples():
    x = randn(2, 3, 5)
    return [
        Sample((x, -1), {"training": False}),
        Sample((x, 0, 0.0, True)),
        Sample((x.transpose(0, 2), 1, 1.0), second_order=False),
    ]


def linear_dropout_samples():
    x, weight, bias = linear_dropout_inputs()
    return [
        Sample((x, weight, bias), {"training": False}),
        Sample((x, weight), {"dropout_p": 0.0}),
        Sample((x, weight, bias, 1.0), second_order=False),
    ]


def masked_dropout_samples():
    scores = randn(2, 2, 3, 4)
    return [
        Sample((scores,)),
        Sample((scores, 0.5), {"causal": "upper_left", "dropout_p": 0.3}),
        Sample((scores,), {"dropout_p": 1.0, "training": True}, second_order=False),
    ]


def dropout_with_rng_samples():
    x = randn(2, 3, 5)
    calls = [(x, dim, 0.3, first, rng()) for dim in (-1, 0) for first in (False, True)]
    return [*of_first_order(*calls), *without_gradients(*((x.half(), *call[1:]) for call in calls))]


def dropout_backward_samples():
    samples = []
    for dim in (-1, 0):
        for softmax_first in (False, True):
            x = randn(2, 3, 5)
            output, statistics, _ = torch.ops.warpfuse._dropout_softmax(x, dim, 0.3, softmax_first, rng())
            saved = (x if softmax_first else output, statistics, rng())
            samples.append((randn(2, 3, 5), *saved, dim, 0.3, softmax_first))
    return without_gradients(*samples)


def linear_dropout_with_rng_samples():
    x, weight, bias = linear_dropout_inputs()
    return of_first_order(*((x, weight, given, 0.3, rng()) for given in (bias, None)))


def masks_with_dropout():
    return [{**every_mask_argument(arguments), "dropout_p": 0.3} for arguments in mask_arguments()]


def masked_dropout_with_rng_samples():
    calls = [{**every, "rng": rng()} for every in masks_with_dropout()]
    samples = [Sample((randn(2, 2, 3, 4),), named, second_order=False) for named in calls]
    return [*samples, Sample((randn(2, 2, 3, 4).half(),), calls[0], differentiable=False)]


def masked_dropout_backward_samples():
    samples = []
    for every in masks_with_dropout():
        scores, grad = randn(2, 2, 3, 4), randn(2, 2, 3, 4)
        _, statistics, _ = torch.ops.warpfuse._scaled_masked_softmax_dropout(scores, **every, rng=rng())
        samples.append(Sample((grad, scores, statistics, rng()), every, differentiable=False))
    return samples


def dropout_mask_samples():
    return without_gradients((randn(2, 3, 5), 0.3, rng()))


DROPOUT_OPERATORS = {
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
