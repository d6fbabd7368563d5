"""Attention over a cache, in the variants that a bundle comes in.

A query at position p sees the cache slots 0..p. A variant first turns the positions into what its
layers need (once a step), and then attends with it (once a layer). Nothing here creates a tensor
or names a device: the traced code serves any batch, length, cache size and device.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Variant:
    """One way to compute attention."""

    # (pos i64[B,T], slots i64[S]) -> what `attend` takes as its `visibility`.
    prepare: Callable[[Tensor, Tensor], Tensor]
    # (heads [B,T,H,3,D], pos i64[B,T], visibility, cache [L,2,B,H,S,D], layer, scale) -> [B,H,T,D]:
    # writes the new keys and values, heads 1 and 2 of the 3, and attends with the queries.
    attend: Callable[[Tensor, Tensor, Tensor, Tensor, int, float], Tensor]
    # Whether the other parts of a layer go through the plugin's operators of decode steps too, which
    # take weights [out, in].
    fused_layers: bool = False


def _hidden(pos: Tensor, slots: Tensor) -> Tensor:
    """bool[B,1,T,S]: True where a slot lies after the query's position."""
    return slots > pos[:, None, :, None]


def _visible(pos: Tensor, slots: Tensor) -> Tensor:
    """bool[B,1,T,S]: True where a slot may be seen, as SDPA wants its mask."""
    return slots <= pos[:, None, :, None]


def _positions(pos: Tensor, slots: Tensor) -> Tensor:
    """i64[B,T]: the fused operator compares positions itself, and needs no mask."""
    return pos


def _attend_baseline(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor, scale: float) -> Tensor:
    scores = torch.matmul(q, k.transpose(2, 3)) * scale  # [B,H,T,S]
    return torch.matmul(F.softmax(scores.masked_fill(hidden, -math.inf), dim=-1), v)


def _attend_fused(q: Tensor, k: Tensor, v: Tensor, pos: Tensor, scale: float) -> Tensor:
    scores = torch.matmul(q, k.transpose(2, 3))  # [B,H,T,S]
    weights = torch.ops.warpfuse.scaled_masked_softmax(
        scores, scale, None, "none", pos, None, 0, None
    )
    return torch.matmul(weights, v)


def _attend_sdpa(q: Tensor, k: Tensor, v: Tensor, visible: Tensor, scale: float) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible, scale=scale)


def _attend_cached(
    heads: Tensor, pos: Tensor, visibility: Tensor, cache: Tensor, layer: int, scale: float
) -> Tensor:
    query, key, value = (heads.select(3, i).transpose(1, 2) for i in range(3))  # [B,H,T,D]
    return torch.ops.warpfuse.cached_attention_softmax(query, key, value, cache, layer, pos, scale)


def _after_writing(
    attend: Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor],
) -> Callable[[Tensor, Tensor, Tensor, Tensor, int, float], Tensor]:
    """attend(query [B,H,T,D], keys [B,H,S,D], values [B,H,S,D], visibility, scale) on the cache."""

    def write_and_attend(
        heads: Tensor, pos: Tensor, visibility: Tensor, cache: Tensor, layer: int, scale: float
    ) -> Tensor:
        query = heads.select(3, 0).transpose(1, 2)
        new = heads.narrow(3, 1, 2).permute(3, 0, 2, 1, 4)  # [2,B,H,T,D]
        written = cache[layer].scatter_(3, pos[:, None, :, None].expand_as(new), new)
        return attend(query, written[0], written[1], visibility, scale)

    return write_and_attend


VARIANTS = {
    "baseline": Variant(_hidden, _after_writing(_attend_baseline)),
    "fused": Variant(_positions, _after_writing(_attend_fused)),
    "sdpa": Variant(_visible, _after_writing(_attend_sdpa)),
    "steps": Variant(_positions, _attend_cached, fused_layers=True),
}
