"""Linear, dropout, softmax: a traced file that draws random numbers, as in training, or drops
nothing, as in evaluation."""

import torch
from torch import Tensor, nn

DROPOUT = 0.2
SOFTMAX_CALLS = 1

# The plugin's operators that a variant calls. In training ATen's chain takes its mask from the
# plugin, so that from the same seed it drops what the fused operator drops.
OPERATORS: dict[str, tuple[str, ...]] = {
    "baseline": (),
    "fused": ("linear_dropout_softmax",),
    "baseline-train": ("_dropout_softmax", "_dropout_mask"),
    "fused-train": ("linear_dropout_softmax",),
}


class Module(nn.Module):
    """[N,in_features] -> probabilities [N,out_features]."""

    def __init__(self, variant: str, in_features: int = 1024, out_features: int = 1024) -> None:
        super().__init__()
        self.inputs = ({"name": "input", "shape": [128, in_features], "std": 1.0},)
        self.linear = nn.Linear(in_features, out_features)
        self.variant = variant

    def forward(self, x: Tensor) -> Tensor:
        """softmax(dropout(linear(x))) over the last dimension."""
        training = self.variant.endswith("-train")
        if self.variant.startswith("fused"):
            return torch.ops.warpfuse.linear_dropout_softmax(
                x, self.linear.weight, self.linear.bias, DROPOUT, training
            )
        scores = self.linear(x)
        if training:
            scores = scores * _mask(scores) * (1 / (1 - DROPOUT))
        return torch.softmax(scores, -1)


def _mask(scores: Tensor) -> Tensor:
    """What the fused operator would keep: a call on one element draws the random state."""
    _, _, rng = torch.ops.warpfuse._dropout_softmax(scores.flatten()[:1], 0, DROPOUT, True)
    return torch.ops.warpfuse._dropout_mask(scores, DROPOUT, rng)
