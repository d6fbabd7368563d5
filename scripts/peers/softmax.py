"""softmax, log_softmax and scaled_masked_softmax beside public kernels."""

import math
from dataclasses import dataclass

import torch

from .cases import Case, worst_of
from .suite import Call, Inputs, Result, Suite, installed

SCALE = 0.125  # of scaled_masked_softmax, as in `warpfuse bench`
MASKED, LOG = "scaled_masked_softmax", "log_softmax"


@dataclass(frozen=True)
class Rules:
    """Which keys are hidden, as the plugin takes it."""

    causal: str = "none"
    key_lengths: torch.Tensor | None = None  # [batch]
    query_positions: torch.Tensor | None = None  # [batch, queries]


def rules_of(case: Case, device: torch.device) -> Rules:
    """The mask of a case, the same for all its inputs."""
    if case.mask == "causal":
        return Rules(causal="upper_left")
    if case.mask == "padding":
        return Rules(key_lengths=torch.tensor(case.key_lengths, device=device))
    if case.mask == "positions":
        batch, queries, keys = case.shape[0], *case.shape[-2:]
        last = torch.arange(keys - queries, keys, device=device)
        return Rules(query_positions=last.expand(batch, queries).contiguous())
    return Rules()


def gradient(grad: torch.Tensor, output: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """That of a softmax's input, and the size of the terms that it is made of."""
    product = grad * output
    right = product - output * product.sum(dim, keepdim=True)
    return right, product.abs_() + output * product.abs().sum(dim, keepdim=True)


class Softmax(Suite):
    """With a mask: ATen's chain of kernels."""

    masks = ("none", "causal", "padding", "positions")

    def __init__(self, case: Case, device: torch.device) -> None:
        super().__init__(case, device)
        self.rules = rules_of(case, device)
        self.masked, self.log = case.operator.startswith(MASKED), case.operator == LOG
        self.scale = SCALE if self.masked else 1.0
        self.hidden = self._hidden(device)

    def inputs(self, generator: torch.Generator) -> Inputs:
        scores = self.random(generator)
        return (scores,) if self.case.forward else (self.random(generator), self._right(scores))

    def calls(self) -> dict[str, Call]:
        makers = {"warpfuse": self.plugin, "chain" if self.masked else "aten": self.aten}
        if self.case.operator == "softmax" and self.case.dim == len(self.case.shape) - 1:
            makers |= {"Liger": self.liger, "QuACK": self.quack, "Triton tutorial": self.triton}
        return {name: call for name, make in makers.items() if (call := make())}

    def plugin(self) -> Call:
        """Ours."""
        ops, dim = torch.ops.warpfuse, self.case.dim  # which are there when they are called
        if not self.masked:
            name = "log_softmax" if self.log else "softmax"
            name = name if self.case.forward else f"_{name}_backward"
            return lambda *inputs: getattr(ops, name)(*inputs, dim)
        how = self._how
        if self.case.forward:
            return lambda scores: ops.scaled_masked_softmax(scores, *how)
        return lambda grad, output: ops._scaled_masked_softmax_backward(grad, output, *how)

    @property
    def _how(self) -> tuple:
        """The arguments of our operators with a mask."""
        rules = self.rules
        return SCALE, None, rules.causal, rules.query_positions, rules.key_lengths, 0, None

    def aten(self) -> Call:
        """ATen's kernels one by one, as autograd would call them."""
        return self._forward_or_backward(lambda device: self.hidden)

    def to_compile(self) -> Call:
        """The same with masks computed from indices, which are read from nowhere."""
        return self._forward_or_backward(self._hidden)

    def _hidden(self, device: torch.device) -> torch.Tensor | None:
        """A mask that broadcasts to the shape."""
        if self.case.mask == "none":
            return None
        rules, (queries, keys) = self.rules, self.case.shape[-2:]
        key = torch.arange(keys, device=device)
        if rules.key_lengths is not None:
            return key >= rules.key_lengths.view(-1, 1, 1, 1)
        if rules.query_positions is not None:
            return key > rules.query_positions[:, None, :, None]
        return key > torch.arange(queries, device=device)[:, None]

    def _forward_or_backward(self, hidden_of) -> Call:
        dim, dtype, scale = self.case.dim, self.case.dtype, self.scale
        function = torch.log_softmax if self.log else torch.softmax
        gradient = torch.ops.aten._log_softmax_backward_data if self.log else torch.ops.aten._softmax_backward_data

        def masked(tensor: torch.Tensor, value: float) -> torch.Tensor:
            hidden = hidden_of(tensor.device)
            return tensor if hidden is None else tensor.masked_fill(hidden, value)

        def forward(scores: torch.Tensor) -> torch.Tensor:
            return function(masked(scores * scale, -math.inf) if self.masked else scores, dim)

        def backward(grad: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
            result = gradient(grad, output, dim, dtype)
            return masked(result, 0.0) * scale if self.masked else result

        return forward if self.case.forward else backward

    def liger(self) -> Call | None:
        """The kernels of Liger-Kernel's autograd function."""
        kernels, utils = installed("liger_kernel.ops.softmax"), installed("liger_kernel.ops.utils")
        if not (kernels and utils):
            return None
        if self.case.forward:
            return lambda scores: kernels._softmax_forward(scores)[0]
        columns = self.case.columns

        def backward(grad: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
            block, warps = utils.calculate_settings(columns)  # which refuses longer rows
            return kernels._softmax_backward(grad, output, block, warps, columns > block)

        return backward

    def quack(self) -> Call | None:
        """Those of QuACK's, which take matrices."""
        kernels = installed("quack.softmax") if self.case.is_matrix else None
        return kernels and (kernels.softmax_fwd if self.case.forward else kernels.softmax_bwd)

    def triton(self) -> Call | None:
        """Our own kernel after the idea of Triton's tutorial."""
        from . import triton_softmax as kernels

        if not self.case.is_matrix or self.case.columns > kernels.MOST_COLUMNS:
            return None
        return kernels.softmax if self.case.forward else kernels.softmax_backward

    def _right(self, scores: torch.Tensor) -> torch.Tensor:
        scores = scores * self.scale
        if self.hidden is not None:
            scores = scores.masked_fill(self.hidden, -math.inf)
        return (torch.log_softmax if self.log else torch.softmax)(scores, self.case.dim)

    def error(self, inputs: Inputs, result: Result) -> float:
        if not self.fits(result):
            return math.inf
        dim = self.case.dim
        if self.case.forward:
            right = self._right(inputs[0].double())
            return worst_of(result, right, right.abs() + 1 if self.log else right)
        grad, output = (tensor.double() for tensor in inputs)
        if self.log:
            powers = output.exp_()
            right = grad - powers * grad.sum(dim, keepdim=True)
            return worst_of(result, right, grad.abs_() + powers * grad.abs().sum(dim, keepdim=True))
        return worst_of(result, *(term * self.scale for term in gradient(grad, output, dim)))
