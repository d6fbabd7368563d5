"""sample_tokens beside a draw by PyTorch's operators, and by Hugging Face's processors of logits."""

import math

import torch

from .cases import TOLERANCE
from .suite import Call, Inputs, Result, Suite, installed

TEMPERATURE, TOP_K, TOP_P = 0.8, 50, 0.95  # as in `warpfuse bench`


def drawn(powers: torch.Tensor) -> torch.Tensor:
    """A place of each row, as multinomial draws it, but without the host, as gpt-fast does."""
    return (powers / torch.empty_like(powers).exponential_()).argmax(-1)


class Sampling(Suite):
    """On logits, and ours on the number of a step, which names its random numbers."""

    directions = ("forward",)

    def inputs(self, generator: torch.Generator) -> Inputs:
        return self.random(generator), torch.randint(1 << 30, (1,), device=self.device, generator=generator)

    def calls(self) -> dict[str, Call]:
        ours = lambda logits, step: torch.ops.warpfuse.sample_tokens(logits, step, 0, TEMPERATURE, TOP_K, TOP_P)
        theirs = self.hugging_face()
        return {"warpfuse": ours, "aten": self.to_compile()} | ({"Hugging Face": theirs} if theirs else {})

    def to_compile(self) -> Call:
        """On the largest alone, which topk sorts."""
        count = min(TOP_K, self.case.columns)

        def draw(logits: torch.Tensor, _step: torch.Tensor) -> torch.Tensor:
            values, ids = logits.topk(count)
            powers = torch.softmax(values / TEMPERATURE, -1)
            kept = powers.masked_fill(powers.cumsum(-1) - powers >= TOP_P, 0.0)
            return ids.gather(-1, drawn(kept).unsqueeze(-1)).squeeze(-1)

        return draw

    def hugging_face(self) -> Call | None:
        """What generate() computes in each step, on all logits."""
        module = installed("transformers.generation.logits_process")
        if not module:
            return None
        warpers = module.TemperatureLogitsWarper(TEMPERATURE), module.TopKLogitsWarper(TOP_K), module.TopPLogitsWarper(TOP_P)

        def draw(logits: torch.Tensor, _step: torch.Tensor) -> torch.Tensor:
            scores = logits.float()
            for warper in warpers:
                scores = warper(None, scores)
            return drawn(scores.softmax(-1))

        return draw

    def error(self, inputs: Inputs, result: Result) -> float:
        """How far the probability of larger tokens is beyond top_p; that of all which top_k keeps is."""
        logits = inputs[0].double()
        if result.shape != logits.shape[:-1] or result.dtype != torch.int64:
            return math.inf
        if ((result < 0) | (result >= self.case.columns)).any():
            return math.inf
        least = logits.topk(min(TOP_K, self.case.columns)).values[..., -1:]
        token = logits.gather(-1, result.unsqueeze(-1))
        powers = torch.softmax(logits.masked_fill(logits < least, -math.inf) / TEMPERATURE, -1)
        beyond = (powers * (logits > token)).sum(-1) - TOP_P
        return (beyond.max() / TOLERANCE[self.case.dtype]).clamp_min(0).item()
