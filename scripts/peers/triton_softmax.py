"""A softmax in Triton after the idea of its tutorial: few programs that stay, a row in one block.

A program takes every n-th row, so that the next rows' loads are in flight while it computes.
"""

import torch
import triton
import triton.language as tl

MOST_COLUMNS = 65536  # a row must fit the registers of a program
PIPELINE_BYTES = 96 << 10  # of shared memory for rows in flight
WARPS_PER_SM = 64


@triton.jit
def _forward(
    scores,  # [rows, columns]
    result,  # [rows, columns]
    rows,
    columns,
    block: tl.constexpr,
    stages: tl.constexpr,
):
    column = tl.arange(0, block)
    inside = column < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=stages):
        start = row.to(tl.int64) * columns
        x = tl.load(scores + start + column, mask=inside, other=-float("inf")).to(tl.float32)
        powers = tl.exp(x - tl.max(x, axis=0))
        tl.store(result + start + column, powers / tl.sum(powers, axis=0), mask=inside)


@triton.jit
def _backward(
    grad,  # [rows, columns]
    output,  # [rows, columns]
    result,  # [rows, columns]
    rows,
    columns,
    block: tl.constexpr,
    stages: tl.constexpr,
):
    column = tl.arange(0, block)
    inside = column < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=stages):
        start = row.to(tl.int64) * columns
        g = tl.load(grad + start + column, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(output + start + column, mask=inside, other=0.0).to(tl.float32)
        dot = tl.sum(g * y, axis=0)
        tl.store(result + start + column, y * (g - dot), mask=inside)


def softmax(scores: torch.Tensor) -> torch.Tensor:
    """Over the last dimension of a contiguous matrix."""
    return _launch(_forward, scores)


def softmax_backward(grad: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """The gradient of softmax over the last dimension, from its output."""
    return _launch(_backward, grad, output)


def _launch(kernel: triton.JITFunction, *inputs: torch.Tensor) -> torch.Tensor:
    rows, columns = inputs[0].shape
    result = torch.empty_like(inputs[0])
    block = triton.next_power_of_2(columns)
    warps = 4 if block <= 2048 else 8 if block <= 8192 else 16 if block <= 16384 else 32
    in_flight = PIPELINE_BYTES // (block * result.element_size() * len(inputs))
    multiprocessors = torch.cuda.get_device_properties(result.device).multi_processor_count
    programs = min(rows, multiprocessors * (WARPS_PER_SM // warps))
    stages = min(max(in_flight, 1), 4)
    kernel[(programs,)](*inputs, result, rows, columns, block=block, stages=stages, num_warps=warps)
    return result
