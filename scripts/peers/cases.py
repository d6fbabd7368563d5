"""Rows of a run of ours as cases, and how far a result may be off."""

import math
from dataclasses import dataclass

import torch
from report.run import ReportError, Row

MOST_SETS = 8192
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
    direction: str
    least_bytes: float
    key_lengths: tuple[int, ...] = ()  # of a padding mask, one per batch entry
    levels: tuple[tuple[int, int], ...] = ()  # of ms_deform_attn
    tf32: bool = False  # float32 whose matmuls may use TF32

    @property
    def forward(self) -> bool:
        return self.direction == "forward"

    @property
    def columns(self) -> int:
        return self.shape[self.dim]

    @property
    def rows(self) -> int:
        return math.prod(self.shape) // self.columns

    @property
    def is_matrix(self) -> bool:
        """Whether kernels that take the rows of a matrix can take it."""
        return len(self.shape) == 2 and self.dim == 1


def case_of(row: Row) -> Case:
    """The workload of a row, as it was measured."""
    key, lengths = row.key._asdict(), row.raw.get("key_lengths", ())
    if row.key.mask == "padding" and not lengths:
        raise ReportError(f"{row.name}: key_lengths is missing: measure ours anew (scripts/bench_gpu.sh)")
    tf32 = row.key.dtype == "tf32"
    key["dtype"] = torch.float32 if tf32 else getattr(torch, row.key.dtype)
    return Case(**key, direction=row.direction, least_bytes=row.least_bytes, key_lengths=tuple(lengths), tf32=tf32)


def sets_for(nbytes: int, l2_bytes: int) -> int:
    """How many tensors of a size are more than twice the L2."""
    return min(max(2 * l2_bytes // nbytes + 1, 2), MOST_SETS)


def worst_of(result: torch.Tensor, right: torch.Tensor, magnitude: torch.Tensor) -> float:
    """The largest error in what the result's dtype is allowed; NaN if it has one."""
    allowed = TOLERANCE[result.dtype] * magnitude + SMALLEST[result.dtype]
    return ((result - right).abs_() / allowed).max().item()
