"""Rows of a run of ours as tensors: inputs that the L2 cannot hold, masks and the reference."""

import math
from dataclasses import dataclass

import torch
from report.run import ReportError, Row

from . import deform

SCALE = 0.125  # of scaled_masked_softmax, as in `warpfuse bench`
MASKED = "scaled_masked_softmax"
MOST_SETS = 8192
SEED = 20
# Allowed of an element's magnitude; a half type's sums and differences may be rounded on the way.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2.0**-8, torch.bfloat16: 2.0**-5}
# What a result may be off where it is rounded to a subnormal number.
SMALLEST = {torch.float32: 1e-37, torch.float16: 1e-7, torch.bfloat16: 1e-37}


@dataclass(frozen=True)
class Case:
    """What a row of the benchmark asks for."""

    operator: str
    shape: tuple[int, ...]
    dim: int
    dtype: torch.dtype
    mask: str
    forward: bool
    least_bytes: float
    key_lengths: tuple[int, ...] = ()  # of a padding mask, one per batch entry
    levels: tuple[tuple[int, int], ...] = ()  # of ms_deform_attn

    @property
    def input_bytes(self) -> int:
        """Of the scores, or of the gradient and the output."""
        if self.levels:
            return deform.input_bytes(self.shape, self.levels, self.dtype)
        return (1 if self.forward else 2) * math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Rules:
    """Which keys are hidden: as the plugin takes it, and as a mask for others."""

    causal: str = "none"
    key_lengths: torch.Tensor | None = None  # [batch]
    query_positions: torch.Tensor | None = None  # [batch, queries]
    hidden: torch.Tensor | None = None  # broadcasts to the shape


def case_of(row: Row) -> Case:
    """The workload of a row, as it was measured."""
    key = row.key
    if key.mask == "padding" and "key_lengths" not in row.raw:
        raise ReportError(f"{row.name}: key_lengths is missing: measure ours anew (scripts/bench_gpu.sh)")
    return Case(
        operator=key.operator,
        shape=key.shape,
        dim=key.dim,
        dtype=getattr(torch, key.dtype),
        mask=key.mask,
        forward=row.direction == "forward",
        least_bytes=row.least_bytes,
        key_lengths=tuple(row.raw.get("key_lengths", ())),
        levels=key.levels,
    )


def sets_for(nbytes: int, l2_bytes: int) -> int:
    """How many tensors of a size are more than twice the L2."""
    return min(max(2 * l2_bytes // nbytes + 1, 2), MOST_SETS)


def rules_of(case: Case, device: torch.device) -> Rules:
    """The mask of a case, the same for all its inputs."""
    if case.mask == "none":
        return Rules()
    batch, queries, keys = case.shape[0], case.shape[-2], case.shape[-1]
    key = torch.arange(keys, device=device)
    if case.mask == "causal":
        query = torch.arange(queries, device=device)
        return Rules(causal="upper_left", hidden=key > query[:, None])
    if case.mask == "padding":
        lengths = torch.tensor(case.key_lengths, device=device)
        return Rules(key_lengths=lengths, hidden=key >= lengths.view(-1, 1, 1, 1))
    if case.mask == "positions":
        last = torch.arange(keys - queries, keys, device=device).expand(batch, queries).contiguous()
        return Rules(query_positions=last, hidden=key > last.view(batch, 1, queries, 1))
    raise ValueError(f"no peers are known for the mask {case.mask}")


def inputs_of(
    case: Case, rules: Rules, sets: int, device: torch.device
) -> list[tuple[torch.Tensor, ...]]:
    """Random scores, or gradients and outputs; each tensor in memory of its own."""
    generator = torch.Generator(device).manual_seed(SEED)

    if case.levels:
        uniform = case.operator == "ms_deform_attn_uniform"
        return [deform.inputs_of(case.shape, case.levels, case.dtype, uniform, generator) for _ in range(sets)]

    def random() -> torch.Tensor:
        return torch.randn(case.shape, dtype=case.dtype, device=device, generator=generator)

    if case.forward:
        return [(random(),) for _ in range(sets)]
    return [(random(), forward_of(case, rules, random())) for _ in range(sets)]


def forward_of(case: Case, rules: Rules, scores: torch.Tensor) -> torch.Tensor:
    """The chain of ATen's operators that the plugin's operator stands for."""
    if case.operator == MASKED:
        scores = scores * SCALE
    if rules.hidden is not None:
        scores = scores.masked_fill(rules.hidden, -math.inf)
    return torch.softmax(scores, case.dim)


def error_of(
    case: Case, rules: Rules, inputs: tuple[torch.Tensor, ...], result: torch.Tensor
) -> float:
    """The largest error of a result against float64, in what is allowed; NaN if it has one."""
    batch, queries, heads, channels = case.shape[:4] if case.levels else (0, 0, 0, 0)
    shape = (batch, queries, heads * channels) if case.levels else case.shape
    if result.shape != shape or result.dtype != case.dtype:
        return math.inf
    if case.levels:
        right, magnitude = deform.reference(case.levels, inputs)
    elif case.forward:
        right = magnitude = forward_of(case, rules, inputs[0].double())
    else:
        grad, output = (tensor.double() for tensor in inputs)
        scale = SCALE if case.operator == MASKED else 1.0
        product = grad * output
        right = (product - output * product.sum(case.dim, keepdim=True)) * scale
        magnitude = product.abs_() + output * product.abs().sum(case.dim, keepdim=True)
        magnitude *= scale
    allowed = TOLERANCE[case.dtype] * magnitude + SMALLEST[case.dtype]
    return ((result - right).abs_() / allowed).max().item()
