"""Models of sample_tokens."""

import torch
from torch import Tensor


class SampleTokens(torch.nn.Module):
    """What does not depend on chance: greedy, and rows with one token that may be drawn."""

    def __init__(self):
        super().__init__()
        self.register_buffer("logits", torch.randn(3, 9))
        self.register_buffer("step", torch.tensor([4]))
        self.register_buffer("rows", torch.tensor([7, 0, 2]))
        self.register_buffer("expected", self.logits.argmax(-1).double().repeat(4))

    def forward(self) -> Tensor:
        ops = torch.ops.warpfuse
        greedy = ops.sample_tokens(self.logits, self.step, 5, 0.0)
        first = ops.sample_tokens(self.logits, self.step, 5, 0.9, 1, 1.0, 0.0, self.rows)
        nucleus = ops.sample_tokens(self.logits, self.step, 5, 0.9, 0, 1e-6)
        likeliest = ops.sample_tokens(self.logits, self.step, 5, 0.9, 0, 1.0, 1.0)
        return torch.cat([greedy, first, nucleus, likeliest]).double()
