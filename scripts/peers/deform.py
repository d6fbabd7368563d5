"""ms_deform_attn: its inputs as `warpfuse bench` draws them, and its form by grid_sample."""

import math

import torch
import torch.nn.functional as F

from .cases import worst_of
from .suite import Call, Inputs, Result, Suite

UNIFORM = "ms_deform_attn_uniform"
OBJECTS, OBJECT_SIZE, DECODER_QUERIES, SPREAD_PIXELS = 16, 0.05, 1024, 2.0

Levels = tuple[tuple[int, int], ...]  # height and width


def pixels(levels: Levels) -> int:
    """Of all levels."""
    return sum(height * width for height, width in levels)


def input_bytes(shape: tuple[int, ...], levels: Levels, dtype: torch.dtype) -> int:
    """Of value, locations and weights."""
    batch, queries, heads, channels, points = shape
    value = batch * pixels(levels) * heads * channels * dtype.itemsize
    return value + batch * queries * heads * len(levels) * points * 3 * 4


def inputs_of(
    shape: tuple[int, ...], levels: Levels, dtype: torch.dtype, uniform: bool, generator: torch.Generator
) -> Inputs:
    """Points drawn from all of the image, or near a place of their query's own."""
    batch, queries, heads, channels, points = shape
    options = {"device": generator.device, "generator": generator}
    value = torch.randn(batch, pixels(levels), heads, channels, **options).to(dtype)
    shapes = torch.tensor(levels, device=generator.device)
    starts = torch.cat([shapes.new_zeros(1), shapes.prod(1).cumsum(0)[:-1]])
    drawn = (batch, queries, heads, len(levels), points, 2)
    if uniform:
        locations = torch.rand(drawn, **options)
    else:
        extent = shapes.flip(-1).view(-1, 1, 2)
        ring = _ring(heads, points).to(generator.device)
        offset = (ring + torch.randn(drawn, **options) * SPREAD_PIXELS) / extent
        places = torch.stack([_places(queries, levels, generator) for _ in range(batch)])
        locations = places.view(batch, queries, 1, 1, 1, 2) + offset
    weights = torch.randn(drawn[:-1], **options).flatten(-2).softmax(-1).view(drawn[:-1])
    return value, shapes, starts, locations.contiguous(), weights


def _raster(count: int, rows: int, columns: int, device: torch.device) -> torch.Tensor:
    cell = torch.arange(count, device=device)
    return torch.stack([(cell % columns + 0.5) / columns, (cell // columns + 0.5) / rows], -1)


def _places(queries: int, levels: Levels, generator: torch.Generator) -> torch.Tensor:
    device = generator.device
    if queries == pixels(levels):
        return torch.cat([_raster(height * width, height, width, device) for height, width in levels])
    if queries <= DECODER_QUERIES:
        options = {"device": device, "generator": generator}
        objects = torch.rand(OBJECTS, 2, **options)[torch.randint(OBJECTS, (queries,), **options)]
        return objects + torch.randn(queries, 2, **options) * OBJECT_SIZE
    height, width = levels[0]
    columns = math.ceil(math.sqrt(queries * width / height))
    return _raster(queries, -(-queries // columns), columns, device)


def _ring(heads: int, points: int) -> torch.Tensor:
    """Pixels from a place to its points, as Deformable-DETR's module starts."""
    angle = torch.arange(heads) * (2 * math.pi / heads)
    direction = torch.stack([angle.cos(), angle.sin()], -1)
    direction = direction / direction.abs().amax(-1, keepdim=True)
    return direction.view(heads, 1, 1, 2) * torch.arange(1, points + 1).view(1, 1, -1, 1)


def by_grid_sample(levels: Levels, value: torch.Tensor, locations: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Deformable-DETR's ms_deform_attn_core_pytorch, in the dtype of the locations."""
    batch, _, heads, channels = value.shape
    queries = locations.shape[1]
    images = value.to(locations.dtype).split([height * width for height, width in levels], 1)
    grids = 2 * locations - 1
    sampled = []
    for level, (height, width) in enumerate(levels):
        image = images[level].flatten(2).transpose(1, 2).reshape(batch * heads, channels, height, width)
        grid = grids[:, :, :, level].transpose(1, 2).flatten(0, 1)
        sampled.append(F.grid_sample(image, grid, mode="bilinear", padding_mode="zeros", align_corners=False))
    factors = weights.transpose(1, 2).reshape(batch * heads, 1, queries, -1)
    output = (torch.stack(sampled, -2).flatten(-2) * factors).sum(-1)
    return output.view(batch, heads * channels, queries).transpose(1, 2).to(value.dtype).contiguous()


def reference(levels: Levels, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """The output in float64, and the size of its terms with that of the largest value, by whose share
    float32 coordinates may move it. Image by image: each sample is in memory."""
    value, _, _, locations, weights = inputs
    right, size = [], []
    for image in zip(value.split(1), locations.split(1), weights.split(1)):
        wide, *points = (tensor.double() for tensor in image)
        right.append(by_grid_sample(levels, wide, *points))
        size.append(by_grid_sample(levels, wide.abs(), *points))
    return torch.cat(right), torch.cat(size) + value.abs().max()


class Deform(Suite):
    """Inputs are value, spatial_shapes, level_start_index, locations and weights."""

    directions = ("forward",)

    @property
    def input_bytes(self) -> int:
        return input_bytes(self.case.shape, self.case.levels, self.case.dtype)

    def inputs(self, generator: torch.Generator) -> Inputs:
        case = self.case
        return inputs_of(case.shape, case.levels, case.dtype, case.operator == UNIFORM, generator)

    def calls(self) -> dict[str, Call]:
        return {"warpfuse": lambda *inputs: torch.ops.warpfuse.ms_deform_attn(*inputs), "aten": self.to_compile()}

    def to_compile(self) -> Call:
        return lambda value, _, __, *points: by_grid_sample(self.case.levels, value, *points)

    def error(self, inputs: Inputs, result: Result) -> float:
        batch, queries, heads, channels = self.case.shape[:4]
        if result.shape != (batch, queries, heads * channels) or result.dtype != self.case.dtype:
            return math.inf
        return worst_of(result, *reference(self.case.levels, inputs))
