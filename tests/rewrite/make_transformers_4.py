#!/usr/bin/env python3
"""Makes transformers_4.pt, which was made once and is kept: GPT-2's attention as transformers 4.0 to 4.4x
traced it, with a `bias` buffer of the causal triangle and a 0-dimensional divisor and fill.

    python3 tests/rewrite/make_transformers_4.py
"""

import io
import zipfile
from pathlib import Path

import torch
from torch import Tensor, nn

VOCABULARY, WIDTH, HEADS, POSITIONS = 96, 16, 4, 64


class Conv1D(nn.Module):
    """GPT-2's linear layer, whose weight is [inputs, outputs]."""

    def __init__(self, outputs: int, inputs: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(0.3 * torch.randn(inputs, outputs)), nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """[.., inputs] -> [.., outputs]."""
        size = (*x.size()[:-1], self.weight.size(1))
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(size)


class Attention(nn.Module):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        triangle = torch.tril(torch.ones(POSITIONS, POSITIONS, dtype=torch.bool))
        self.register_buffer("bias", triangle.view(1, 1, POSITIONS, POSITIONS))
        self.c_attn, self.c_proj = Conv1D(3 * WIDTH, WIDTH), Conv1D(WIDTH, WIDTH)
        self.attn_dropout = nn.Dropout(0.1)

    def heads(self, x: Tensor) -> Tensor:
        """[B, T, WIDTH] -> [B, HEADS, T, WIDTH / HEADS]."""
        return x.view(*x.size()[:-1], HEADS, WIDTH // HEADS).permute(0, 2, 1, 3)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, WIDTH] -> [B, T, WIDTH]."""
        query, key, value = map(self.heads, self.c_attn(x).split(WIDTH, dim=2))
        weights = torch.matmul(query, key.transpose(-1, -2))
        weights = weights / torch.full([], value.size(-1) ** 0.5, dtype=weights.dtype, device=weights.device)
        rows, keys = query.size(-2), key.size(-2)
        causal_mask = self.bias[:, :, keys - rows : keys, :keys]
        lowest = torch.full([], torch.finfo(weights.dtype).min, dtype=weights.dtype, device=weights.device)
        weights = torch.where(causal_mask, weights.to(weights.dtype), lowest)
        weights = nn.functional.softmax(weights, dim=-1)
        weights = self.attn_dropout(weights.type(value.dtype))
        merged = torch.matmul(weights, value).permute(0, 2, 1, 3).contiguous()
        return self.c_proj(merged.view(*merged.size()[:-2], WIDTH))


class Model(nn.Module):
    """[B, T] token ids -> [B, T, VOCABULARY] logits, by two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.h = nn.ModuleList(Attention() for _ in range(2))
        self.ln_f = nn.LayerNorm(WIDTH)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Of any batch and length up to POSITIONS."""
        position_ids = torch.arange(input_ids.size(-1), dtype=torch.long, device=input_ids.device)
        x = self.wte(input_ids) + self.wpe(position_ids.unsqueeze(0))
        for layer in self.h:
            x = x + layer(x)
        return nn.functional.linear(self.ln_f(x), self.wte.weight)


if __name__ == "__main__":
    torch.manual_seed(1)
    model = Model().eval().requires_grad_(False)
    traced = torch.jit.trace(model, torch.zeros(2, 7, dtype=torch.long), check_trace=False)
    archive = zipfile.ZipFile(io.BytesIO(traced.save_to_buffer()))
    with zipfile.ZipFile(Path(__file__).with_name("transformers_4.pt"), "w") as kept:
        for name in archive.namelist():
            if not name.endswith(".debug_pkl"):  # paths of the machine
                kept.writestr(name, archive.read(name))
