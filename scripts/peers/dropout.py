"""dropout_softmax, softmax_dropout and scaled_masked_softmax_dropout in training.

A forward draws its own random numbers, and which elements it kept is read off its result.
"""

import math

import torch
import torch.nn.functional as F

from .cases import worst_of
from .softmax import MASKED, Softmax, gradient
from .suite import Call, Inputs, Result

DROPOUT_FIRST, SOFTMAX_FIRST, MASKED_DROPOUT = "dropout_softmax", "softmax_dropout", f"{MASKED}_dropout"
P = 0.2  # as in `warpfuse bench`
KEPT = 1 / (1 - P)  # what a kept element is multiplied by
DEVIATIONS = 6  # that the share of kept elements may be off


def rate_is_off(keep: torch.Tensor) -> bool:
    """Whether another share than 1 - P is kept."""
    spread = math.sqrt(P * (1 - P) / max(keep.numel(), 1))
    return keep.numel() > 0 and abs(keep.double().mean().item() - (1 - P)) > DEVIATIONS * spread


def of_rounded(scores: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The softmax, and its size where the scores were rounded before: it changes by as much as they do."""
    right, size = torch.softmax(scores, dim), scores.abs()
    return right, right * (1 + (size + (right * size).sum(dim, keepdim=True)) / 4)


def kept_before(scores: torch.Tensor, result: torch.Tensor, dim: int) -> torch.Tensor:
    """Which scores a softmax behind dropout was given: the others have the probability of a score of 0.

    The row's largest probability is that of a kept score or of a dropped one: the right guess explains the others too.
    That score may have been rounded, so then the probability of 0 is computed from all.
    """
    powers = (scores * KEPT).exp()
    largest, place = result.max(dim, keepdim=True)

    def explained(of_zero: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept, dropped = (result - of_zero * powers).abs_(), (result - of_zero).abs_()
        return kept < dropped, torch.minimum(kept, dropped).sum(dim, keepdim=True)

    (keep, off), (other, other_off) = map(explained, (largest / powers.gather(dim, place), largest))
    keep = torch.where(off <= other_off, keep, other)
    return explained(1 / torch.where(keep, powers, 1.0).sum(dim, keepdim=True))[0]


class Dropout(Softmax):
    """Forward (scores), backward (gradient, output of the softmax, kept elements, and ours: scores or output,
    statistics, rng)."""

    @property
    def dropout_first(self) -> bool:
        return self.case.operator == DROPOUT_FIRST

    def inputs(self, generator: torch.Generator) -> Inputs:
        scores = self.random(generator)
        if self.case.forward:
            return (scores,)
        ops, dim = torch.ops.warpfuse, self.case.dim
        seed = torch.randint(1 << 30, (1,), device=self.device, generator=generator)
        rng = torch.cat([seed, torch.zeros_like(seed)])
        keep = ops._dropout_mask(scores, P, rng)
        if self.dropout_first:
            output = torch.softmax(scores * keep * KEPT, dim)
            return self.random(generator), output, keep, output, scores.new_empty(0), rng
        if self.masked:
            statistics = ops._scaled_masked_softmax_dropout(scores, *self._how, P, rng)[1]
        else:
            statistics = ops._dropout_softmax(scores, dim, P, True, rng)[1]
        return self.random(generator), self._right(scores), keep, scores, statistics, rng

    def plugin(self) -> Call:
        """Ours."""
        ops, dim, name, how = torch.ops.warpfuse, self.case.dim, self.case.operator, self._how
        if self.case.forward:
            if self.masked:
                return lambda scores: ops.scaled_masked_softmax_dropout(scores, *how, P, True)
            return lambda scores: getattr(ops, name)(scores, dim, P, True)
        if self.masked:
            return lambda grad, _, __, *saved: ops._scaled_masked_softmax_dropout_backward(grad, *saved, *how, P)
        first = not self.dropout_first
        return lambda grad, _, __, *saved: ops._dropout_softmax_backward(grad, *saved, dim, P, first)

    def _forward_or_backward(self, hidden_of) -> Call:
        """Dropout before or behind what the softmax has without it."""
        softmax = super()._forward_or_backward(hidden_of)
        undrop = torch.ops.aten.native_dropout_backward
        if self.case.forward:
            before = lambda scores: softmax(F.dropout(scores, P))
            behind = lambda scores: F.dropout(softmax(scores), P)
        else:
            before = lambda grad, output, keep, *_: undrop(softmax(grad, output), keep, KEPT)
            behind = lambda grad, output, keep, *_: softmax(undrop(grad, keep, KEPT), output)
        return before if self.dropout_first else behind

    def error(self, inputs: Inputs, result: Result) -> float:
        if not self.fits(result):
            return math.inf
        dim = self.case.dim
        if self.case.forward:
            scores, shown = inputs[0].double(), result.double()
            if self.dropout_first:
                keep, counted = kept_before(scores, shown, dim), scores.abs() > 0.5
                right, magnitude = of_rounded(scores * keep * KEPT, dim)
            else:
                whole = self._right(scores)
                keep, counted = shown != 0, whole > 1e-6  # a smaller one may be rounded to 0
                right = magnitude = whole * keep * KEPT
            return math.inf if rate_is_off(keep[counted]) else worst_of(result, right, magnitude)
        grad, output, keep = (tensor.double() for tensor in inputs[:3])
        factors = keep * (KEPT * self.scale)
        if self.dropout_first:
            return worst_of(result, *(term * factors for term in gradient(grad, output, dim)))
        return worst_of(result, *gradient(grad * factors, output, dim))
