"""Linear, dropout, softmax: a traced file that draws random numbers, as in training, or drops
nothing, as in evaluation."""

import torch
from torch import Tensor, nn

FEATURES = 1024
DROPOUT = 0.2
INPUTS = [{"name": "input", "shape": [128, FEATURES], "dtype": "float32", "std": 1.0}]
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
    """[N,1024] -> probabilities [N,1024]."""

    def __init__(self, variant: str) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, FEATURES)
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
