"""What training computes attention's softmax and the loss with: ATen's operators, or the plugin's."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface

# By --attention: the implementation in transformers. ATen's is a chain of scale, mask, softmax and dropout.
ATTENTION = {"sdpa": "sdpa", "aten": "eager", "warpfuse": "warpfuse"}
LOSSES = ("aten", "warpfuse")


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, _mask: Tensor | None,
    scaling: float | None = None, dropout: float = 0.0, **_options: object,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """transformers' eager attention, causal, with scale, mask, softmax and dropout in one call."""
    scale = query.size(-1) ** -0.5 if scaling is None else scaling
    weights = torch.ops.warpfuse.scaled_masked_softmax_dropout(
        torch.matmul(query, key.transpose(-1, -2)), scale, causal="lower_right",
        dropout_p=dropout, training=module.training,
    )  # fmt: skip
    return torch.matmul(weights, value).transpose(1, 2), weights


AttentionInterface.register("warpfuse", _attend)
AttentionMaskInterface.register("warpfuse", lambda *_arguments, **_options: None)  # none is built


def cross_entropy(logits: Tensor, targets: Tensor, ignore: int, loss: str) -> Tensor:
    """Mean of -log p of the targets that are not `ignore`; logits [B,T,V] of any dtype, in float32."""
    if loss == "warpfuse":
        logprob = torch.ops.warpfuse.fused_logprob(logits, targets, ignore_index=ignore)
        return -logprob.sum() / (targets != ignore).sum()
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=ignore)
