"""The implementations that are compared, as functions of a case's inputs."""

import importlib.metadata
import math
from collections.abc import Callable

import torch

from . import deform
from .cases import MASKED, SCALE, Case, Rules

Call = Callable[..., torch.Tensor]  # of the scores, or of the gradient and the output

COMPILE, AUTOTUNE = "torch.compile", "torch.compile max-autotune"
COMPILE_MODES = {COMPILE: None, AUTOTUNE: "max-autotune-no-cudagraphs"}
LIGER, TRITON = "Liger", "Triton tutorial"


def calls_of(case: Case, rules: Rules) -> dict[str, Call]:
    """By name, ours first; those that cannot take a case at all are left out."""
    plain = case.operator != MASKED and case.dim == len(case.shape) - 1 and not case.levels
    calls = {
        "warpfuse": plugin_call(case, rules),
        "chain" if case.operator == MASKED else "aten": aten_call(case, rules),
        **compiled_calls(case, rules),
    }
    if plain and (call := liger_call(case)):
        calls[LIGER] = call
    if plain and (call := triton_call(case)):
        calls[TRITON] = call
    return calls


def plugin_call(case: Case, rules: Rules) -> Call:
    """Ours."""
    ops = torch.ops.warpfuse
    if case.levels:
        return lambda *inputs: ops.ms_deform_attn(*inputs)
    if case.operator != MASKED:
        if case.forward:
            return lambda scores: ops.softmax(scores, case.dim)
        return lambda grad, output: ops._softmax_backward(grad, output, case.dim)
    how = (SCALE, None, rules.causal, rules.query_positions, rules.key_lengths, 0, None)
    if case.forward:
        return lambda scores: ops.scaled_masked_softmax(scores, *how)
    return lambda grad, output: ops._scaled_masked_softmax_backward(grad, output, *how)


def aten_call(case: Case, rules: Rules) -> Call:
    """ATen's kernels one by one, as autograd would call them."""
    if case.levels:
        return lambda value, _, __, *points: deform.by_grid_sample(case.levels, value, *points)

    def forward(scores: torch.Tensor) -> torch.Tensor:
        if case.operator == MASKED:
            scores = (scores * SCALE).masked_fill(rules.hidden, -math.inf)
        return torch.softmax(scores, case.dim)

    def backward(grad: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        result = torch.ops.aten._softmax_backward_data(grad, output, case.dim, case.dtype)
        if case.operator == MASKED:
            result = result.masked_fill(rules.hidden, 0.0) * SCALE
        return result

    return forward if case.forward else backward


def compiled_calls(case: Case, rules: Rules) -> dict[str, Call]:
    """The same by torch.compile; masks are computed from indices, which is read from nowhere."""
    torch._dynamo.reset()  # the code of the last case, which would count as recompilation
    call = aten_call(case, rules) if case.operator != MASKED else _by_indices(case, rules)
    return {
        name: torch.compile(call, mode=mode, dynamic=False, fullgraph=True)
        for name, mode in COMPILE_MODES.items()
    }


def _by_indices(case: Case, rules: Rules) -> Call:
    queries, keys = case.shape[-2:]

    def hidden(device: torch.device) -> torch.Tensor:
        key = torch.arange(keys, device=device)
        if rules.key_lengths is not None:
            return key >= rules.key_lengths.view(-1, 1, 1, 1)
        if rules.query_positions is not None:
            return key > rules.query_positions[:, None, :, None]
        return key > torch.arange(queries, device=device)[:, None]

    def forward(scores: torch.Tensor) -> torch.Tensor:
        return torch.softmax((scores * SCALE).masked_fill(hidden(scores.device), -math.inf), -1)

    def backward(grad: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        result = torch.ops.aten._softmax_backward_data(grad, output, -1, case.dtype)
        return result.masked_fill(hidden(grad.device), 0.0) * SCALE

    return forward if case.forward else backward


def liger_call(case: Case) -> Call | None:
    """The kernels of Liger-Kernel's autograd function, if it is installed."""
    try:
        from liger_kernel.ops import softmax as liger
        from liger_kernel.ops.utils import calculate_settings
    except ImportError:
        return None
    if case.forward:
        return lambda scores: liger._softmax_forward(scores)[0]

    def backward(grad: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        columns = grad.shape[-1]
        block, warps = calculate_settings(columns)
        return liger._softmax_backward(grad, output, block, warps, columns > block)

    return backward


def triton_call(case: Case) -> Call | None:
    """Our own kernel after the idea of Triton's tutorial."""
    from . import triton_softmax

    if case.shape[-1] > triton_softmax.MOST_COLUMNS:
        return None
    return triton_softmax.softmax if case.forward else triton_softmax.softmax_backward


def versions() -> dict[str, str]:
    """What was compared, as far as it is installed."""
    found = {"torch": torch.__version__}
    for package in ("triton", "liger-kernel"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
