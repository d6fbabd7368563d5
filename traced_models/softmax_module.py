"""The smallest traced file that is no language model: a linear layer and a softmax over it."""

import torch
from torch import Tensor, nn

SOFTMAX_CALLS = 1

# The plugin's operators that a variant calls.
OPERATORS: dict[str, tuple[str, ...]] = {"baseline": (), "fused": ("softmax",)}


class Module(nn.Module):
    """[N,64] -> probabilities [N,1000]."""

    inputs = ({"name": "input", "shape": [8, 64], "std": 1.0},)

    def __init__(self, variant: str) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 1000)
        self.fused = variant == "fused"

    def forward(self, x: Tensor) -> Tensor:
        """Softmax over the last dimension, by ATen or by the plugin."""
        scores = self.linear(x)
        return torch.ops.warpfuse.softmax(scores, -1) if self.fused else torch.softmax(scores, -1)
