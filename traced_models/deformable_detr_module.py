"""A small Deformable-DETR with random weights: an encoder over the pixels of a pyramid of feature
maps, a decoder of queries, and heads for classes and boxes."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

LEVELS = ((16, 20), (8, 10), (4, 5))  # height and width
PIXELS = sum(height * width for height, width in LEVELS)
CHANNELS, HEADS, POINTS = 128, 4, 4
QUERIES, CLASSES, LAYERS = 50, 11, 2
SOFTMAX_CALLS = 2 * LAYERS  # the plugin's; those of queries among each other are ATen's

# The plugin's operators that a variant calls.
OPERATORS: dict[str, tuple[str, ...]] = {"baseline": (), "fused": ("ms_deform_attn_softmax",)}


def by_grid_sample(
    value: Tensor, shapes: Tensor, starts: Tensor, locations: Tensor, logits: Tensor
) -> Tensor:
    """ms_deform_attn_softmax in ATen's operators, in float32. LEVELS say what `shapes` and `starts`
    do, since grid_sample's images need sizes."""
    weights = logits.flatten(-2).softmax(-1).view_as(logits)
    images = value.float().permute(0, 2, 3, 1)  # [B, H, D, S]
    sum_of_levels: Tensor | float = 0.0
    for level, (image, (height, width)) in enumerate(
        zip(images.split([h * w for h, w in LEVELS], -1), LEVELS, strict=True)
    ):
        grid = 2 * locations[:, :, :, level].transpose(1, 2).flatten(0, 1) - 1  # [BH, Q, P, 2]
        samples = functional.grid_sample(
            image.flatten(0, 1).unflatten(-1, (height, width)), grid, align_corners=False
        )  # [BH, D, Q, P]
        weight = weights[:, :, :, level].transpose(1, 2).flatten(0, 1).unsqueeze(1)
        sum_of_levels = (samples * weight).sum(-1) + sum_of_levels
    return sum_of_levels.unflatten(0, (-1, HEADS)).permute(0, 3, 1, 2).flatten(2).to(value.dtype)


class DeformableAttention(nn.Module):
    """Each query [B, Q, C] looks at a few points around its reference point of each level."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.register_buffer("shapes", torch.tensor(LEVELS))
        areas = self.shapes.prod(-1)
        self.register_buffer("starts", areas.cumsum(0) - areas)
        points = HEADS * len(LEVELS) * POINTS
        self.value = nn.Linear(CHANNELS, CHANNELS)
        self.offsets = nn.Linear(CHANNELS, 2 * points)
        self.logits = nn.Linear(CHANNELS, points)
        self.output = nn.Linear(CHANNELS, CHANNELS)
        self.attend = torch.ops.warpfuse.ms_deform_attn_softmax if fused else by_grid_sample
        # Point i of a head starts i + 1 pixels away, each head in its own direction.
        angle = torch.arange(HEADS) * (2 * math.pi / HEADS)
        ring = torch.stack([angle.cos(), angle.sin()], -1)
        ring = ring / ring.abs().amax(-1, keepdim=True)
        steps = torch.arange(1, POINTS + 1).view(-1, 1)
        with torch.no_grad():
            self.offsets.bias.copy_(
                (ring[:, None, None] * steps).expand(-1, len(LEVELS), -1, -1).flatten()
            )

    def forward(self, queries: Tensor, reference: Tensor, memory: Tensor) -> Tensor:
        """reference [Q, 2]: x and y, 0 to 1, float32. memory [B, S, C]."""
        value = self.value(memory).unflatten(-1, (HEADS, -1))
        # Coordinates stay float32 where the model has half precision.
        points = (HEADS, len(LEVELS), POINTS)
        offsets = self.offsets(queries).float().unflatten(-1, (*points, 2))
        sizes = self.shapes.flip(-1)[:, None]  # x and y
        locations = reference[:, None, None, None] + offsets / sizes
        logits = self.logits(queries).float().unflatten(-1, points)
        return self.output(self.attend(value, self.shapes, self.starts, locations, logits))


class FeedForward(nn.Sequential):
    """Of each position alone."""

    def __init__(self) -> None:
        super().__init__(
            nn.Linear(CHANNELS, 2 * CHANNELS), nn.ReLU(), nn.Linear(2 * CHANNELS, CHANNELS)
        )


class EncoderLayer(nn.Module):
    """Pixels look at pixels."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.attention, self.feed_forward = DeformableAttention(fused), FeedForward()
        self.norm1, self.norm2 = nn.LayerNorm(CHANNELS), nn.LayerNorm(CHANNELS)

    def forward(self, pixels: Tensor, position: Tensor, reference: Tensor) -> Tensor:
        """[B, S, C] -> [B, S, C]."""
        pixels = self.norm1(pixels + self.attention(pixels + position, reference, pixels))
        return self.norm2(pixels + self.feed_forward(pixels))


class DecoderLayer(nn.Module):
    """Queries look at queries, then at pixels."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.qkv = nn.Linear(CHANNELS, 3 * CHANNELS)
        self.output = nn.Linear(CHANNELS, CHANNELS)
        self.attention, self.feed_forward = DeformableAttention(fused), FeedForward()
        self.norms = nn.ModuleList(nn.LayerNorm(CHANNELS) for _ in range(3))

    def forward(self, queries: Tensor, reference: Tensor, memory: Tensor) -> Tensor:
        """[B, Q, C] -> [B, Q, C]."""
        q, k, v = self.qkv(queries).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        queries = self.norms[0](queries + self.output(mixed))
        queries = self.norms[1](queries + self.attention(queries, reference, memory))
        return self.norms[2](queries + self.feed_forward(queries))


class Encoder(nn.Module):
    """[B, S, C] -> [B, S, C]. A pixel's reference point is its middle."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(fused) for _ in range(LAYERS))
        self.position = nn.Parameter(torch.randn(PIXELS, CHANNELS))
        # Twice the middle and the extent, as integers: half precision would round the quotient.
        middles = [
            torch.stack(torch.meshgrid(torch.arange(w), torch.arange(h), indexing="xy"), -1)
            for h, w in LEVELS
        ]
        self.register_buffer("middles", torch.cat([2 * m.flatten(0, 1) + 1 for m in middles]))
        self.register_buffer(
            "extents", torch.cat([torch.tensor([[2 * w, 2 * h]]).repeat(h * w, 1) for h, w in LEVELS])
        )

    def forward(self, pixels: Tensor) -> Tensor:
        """All layers."""
        reference = self.middles.float() / self.extents
        for layer in self.layers:
            pixels = layer(pixels, self.position, reference)
        return pixels


class Decoder(nn.Module):
    """Pixels [B, S, C] -> class logits and boxes (x, y, width, height) [B, Q, CLASSES + 4]."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(fused) for _ in range(LAYERS))
        self.queries = nn.Parameter(torch.randn(QUERIES, CHANNELS))
        self.reference = nn.Linear(CHANNELS, 2)
        self.classes, self.boxes = nn.Linear(CHANNELS, CLASSES), nn.Linear(CHANNELS, 4)

    def forward(self, memory: Tensor) -> Tensor:
        """All layers and both heads."""
        reference = self.reference(self.queries).float().sigmoid()
        queries = self.queries.expand(memory.size(0), -1, -1)
        for layer in self.layers:
            queries = layer(queries, reference, memory)
        return torch.cat([self.classes(queries), self.boxes(queries).sigmoid()], -1)


class Module(nn.Module):
    """Feature maps [N, S, C], level by level -> [N, Q, CLASSES + 4]."""

    inputs = ({"name": "features", "shape": [2, PIXELS, CHANNELS], "std": 1.0},)

    def __init__(self, variant: str) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(variant == "fused"), Decoder(variant == "fused")

    def forward(self, features: Tensor) -> Tensor:
        """The decoder's result on the encoder's."""
        return self.decoder(self.encoder(features))
