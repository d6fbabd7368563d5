"""A GPT-2 for inference over a cache that the caller owns, written to be traced.

Parameter names are Hugging Face's; how two kinds of weights lie is not (state_dict.py): keys,
values and queries of a head are side by side, and the rows of a vocabulary are padded. The cache
[L,2,B,H,S,D] of keys and values is an input and is written in place, so one traced file serves any
batch B, length T, cache size S (up to the context) and device.
"""

from collections.abc import Callable

import torch
from attention import VARIANTS, Variant
from gpt2_config import ACTIVATIONS, GPT2Config
from torch import Tensor, nn
from torch.nn import functional as F


def activation_function(name: str) -> Callable[[Tensor], Tensor]:
    """The function behind one of Hugging Face's activation names."""
    kind = ACTIVATIONS[name]
    if kind in ("tanh", "none"):
        return lambda x: F.gelu(x, approximate=kind)
    return {"relu": F.relu, "silu": F.silu, "tanh_function": torch.tanh}[kind]


class Conv1D(nn.Module):
    """GPT-2's linear layer: its weight is [in, out], or [out, in] if it is transposed."""

    def __init__(self, inputs: int, outputs: int, transposed: bool) -> None:
        super().__init__()
        weight = torch.empty(inputs, outputs).normal_(std=0.02)
        self.weight = nn.Parameter(weight.t().contiguous() if transposed else weight)
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.outputs = outputs
        self.transposed = transposed

    def forward(self, x: Tensor) -> Tensor:
        """[B,T,in] -> [B,T,out]."""
        weight = self.weight.t() if self.transposed else self.weight
        flat = torch.addmm(self.bias, x.reshape(-1, x.size(-1)), weight)
        return flat.view(x.size(0), x.size(1), self.outputs)

    def after_norm(self, x: Tensor, norm: nn.LayerNorm, activation: str = "none") -> Tensor:
        """activation(self(norm(x))) by the plugin, the weight being transposed."""
        return torch.ops.warpfuse.norm_linear(
            x, norm.weight, norm.bias, self.weight, self.bias, "layer", norm.eps, activation
        )

    def before_residual(self, x: Tensor, residual: Tensor) -> Tensor:
        """self(x) + residual, likewise."""
        return torch.ops.warpfuse.linear_residual(x, self.weight, self.bias, residual)


class Attention(nn.Module):
    """Self-attention of one layer: writes the new keys and values, then attends over the cache.

    The columns of c_attn are [H,3,D]. So the queries of all heads of all rows of a batch are one
    stride apart, and a product over them needs no copy.
    """

    def __init__(self, config: GPT2Config, layer: int, variant: Variant) -> None:
        super().__init__()
        self.c_attn = Conv1D(config.width, 3 * config.width, variant.fused_layers)
        self.c_proj = Conv1D(config.width, config.width, variant.fused_layers)
        self.heads, self.head_dim = config.heads, config.head_dim
        self.variant = variant
        self.layer = layer
        self.scale = config.head_dim**-0.5 if config.scale_attention else 1.0
        if config.scale_by_inverse_layer:
            self.scale /= layer + 1

    def forward(self, x: Tensor, pos: Tensor, visibility: Tensor, cache: Tensor) -> Tensor:
        """x [B,T,C], pos i64[B,T], cache [L,2,B,H,S,D] -> [B,T,C]."""
        return self.c_proj(self._mix(self.c_attn(x), pos, visibility, cache))

    def fused(
        self, x: Tensor, norm: nn.LayerNorm, pos: Tensor, visibility: Tensor, cache: Tensor
    ) -> Tensor:
        """x + self(norm(x)) by the plugin."""
        mixed = self._mix(self.c_attn.after_norm(x, norm), pos, visibility, cache)
        return self.c_proj.before_residual(mixed, x)

    def _mix(self, qkv: Tensor, pos: Tensor, visibility: Tensor, cache: Tensor) -> Tensor:
        """qkv [B,T,H*3*D] -> the attention of all heads [B,T,C]."""
        heads = qkv.view(qkv.size(0), qkv.size(1), self.heads, 3, self.head_dim)
        mixed = self.variant.attend(heads, pos, visibility, cache, self.layer, self.scale)
        return mixed.transpose(1, 2).reshape(qkv.size(0), qkv.size(1), self.heads * self.head_dim)


class MLP(nn.Module):
    """The feed-forward part of a layer."""

    def __init__(self, config: GPT2Config, variant: Variant) -> None:
        super().__init__()
        self.c_fc = Conv1D(config.width, config.inner, variant.fused_layers)
        self.c_proj = Conv1D(config.inner, config.width, variant.fused_layers)
        self.activation = activation_function(config.activation)
        # What norm_linear computes itself; the others follow it.
        self.fused_activation = {"tanh": "gelu_tanh", "none": "gelu"}.get(
            ACTIVATIONS[config.activation]
        )

    def forward(self, x: Tensor) -> Tensor:
        """[B,T,C] -> [B,T,C]."""
        return self.c_proj(self.activation(self.c_fc(x)))

    def fused(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        """x + self(norm(x)) by the plugin."""
        inner = self.c_fc.after_norm(x, norm, self.fused_activation or "none")
        if self.fused_activation is None:
            inner = self.activation(inner)
        return self.c_proj.before_residual(inner, x)


class Block(nn.Module):
    """One layer."""

    def __init__(self, config: GPT2Config, layer: int, variant: Variant) -> None:
        super().__init__()
        self.fused = variant.fused_layers
        self.ln_1 = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.attn = Attention(config, layer, variant)
        self.ln_2 = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.mlp = MLP(config, variant)

    def forward(self, x: Tensor, pos: Tensor, visibility: Tensor, cache: Tensor) -> Tensor:
        """As Attention.forward, with both residual connections."""
        if self.fused:
            x = self.attn.fused(x, self.ln_1, pos, visibility, cache)
            return self.mlp.fused(x, self.ln_2)
        x = x + self.attn(self.ln_1(x), pos, visibility, cache)
        return x + self.mlp(self.ln_2(x))

    def step_tensors(self) -> list[Tensor]:
        """What gpt2_step takes of a layer."""
        parts = (self.ln_1, self.attn.c_attn, self.attn.c_proj)
        parts += (self.ln_2, self.mlp.c_fc, self.mlp.c_proj)
        return [tensor for part in parts for tensor in (part.weight, part.bias)]


class Transformer(nn.Module):
    """Embeddings and layers, up to but without the last layer norm."""

    def __init__(self, config: GPT2Config, variant: Variant) -> None:
        super().__init__()
        self.wte = nn.Embedding(config.padded_vocab_size, config.width)
        self.wpe = nn.Embedding(config.context, config.width)
        self.h = nn.ModuleList(Block(config, i, variant) for i in range(config.layers))
        self.ln_f = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.variant = variant
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.02)
        self.register_buffer("slots", torch.arange(config.context), persistent=False)

    def forward(self, ids: Tensor, pos: Tensor, cache: Tensor) -> Tensor:
        """ids, pos i64[B,T], cache [L,2,B,H,S,D] -> [B,T,C]."""
        visibility = self.variant.prepare(pos, self.slots[: cache.size(4)])
        x = self.wte(ids) + self.wpe(pos)
        for block in self.h:
            x = block(x, pos, visibility, cache)
        return x


class GPT2(nn.Module):
    """GPT-2 with its head, and the methods of a bundle."""

    def __init__(self, config: GPT2Config, variant: str) -> None:
        super().__init__()
        self.config = config
        self.transformer = Transformer(config, VARIANTS[variant])
        # A tied head is the token embedding itself, so that the file holds it once.
        self.lm_head = None
        if not config.tied_head:
            self.lm_head = nn.Linear(config.width, config.padded_vocab_size, bias=False)

    def _head(self) -> Tensor:
        """The weight of the head, whose rows are padded."""
        return (self.transformer.wte if self.lm_head is None else self.lm_head).weight

    def _logits(self, hidden: Tensor) -> Tensor:
        """[..., C] -> [..., V]."""
        padded = F.linear(self.transformer.ln_f(hidden), self._head())
        return padded.narrow(-1, 0, self.config.vocab_size)

    def forward(self, ids: Tensor, pos: Tensor, cache: Tensor) -> Tensor:
        """Logits [B,T,V] of every token of ids i64[B,T] at pos i64[B,T]."""
        return self._logits(self.transformer(ids, pos, cache))

    def prefill(self, ids: Tensor, pos: Tensor, last: Tensor, cache: Tensor) -> Tensor:
        """Logits [B,V] of row last[b] i64[B] of each prompt."""
        hidden = self.transformer(ids, pos, cache)
        row = last[:, None, None].expand(-1, -1, self.config.width)  # [B,1,C]
        return self._logits(hidden.gather(1, row).squeeze(1))

    def decode(self, ids: Tensor, pos: Tensor, cache: Tensor) -> Tensor:
        """Logits [B,V] of one new token each: ids, pos i64[B,1]."""
        hidden = self.transformer(ids, pos, cache).squeeze(1)
        if not self.transformer.variant.fused_layers:
            return self._logits(hidden)
        norm = self.transformer.ln_f
        padded = torch.ops.warpfuse.norm_linear(
            hidden, norm.weight, norm.bias, self._head(), None, "layer", norm.eps
        )
        return padded.narrow(-1, 0, self.config.vocab_size)

    def next(self, ids: Tensor, pos: Tensor, cache: Tensor) -> Tensor:
        """The most probable next token i64[B], in variants with fused steps."""
        transformer, norm = self.transformer, self.transformer.ln_f
        head = self._head().narrow(0, 0, self.config.vocab_size)
        activation = transformer.h[0].mlp.fused_activation if transformer.h else None
        if activation is None or self.config.scale_by_inverse_layer:
            hidden = transformer(ids, pos, cache).squeeze(1)
            return torch.ops.warpfuse.linear_argmax(
                hidden, head, None, norm.weight, norm.bias, "layer", norm.eps
            )
        return torch.ops.warpfuse.gpt2_step(
            ids,
            pos,
            cache,
            transformer.wte.weight,
            transformer.wpe.weight,
            [tensor for block in transformer.h for tensor in block.step_tensors()],
            norm.weight,
            norm.bias,
            head,
            transformer.h[0].attn.scale,
            norm.eps,
            activation,
        )

    def methods(self) -> tuple[str, ...]:
        """The methods of a bundle of this variant."""
        common = ("forward", "prefill", "decode")
        return (*common, "next") if self.transformer.variant.fused_layers else common
