"""linear_dropout_softmax in training, with a bias: a forward, and a training step with three gradients."""

import math

import torch
import torch.nn.functional as F

from .cases import TOLERANCE, Case, worst_of
from .dropout import KEPT, P, kept_before, of_rounded, rate_is_off
from .softmax import gradient
from .suite import Call, Inputs, Result, Suite


class LinearDropout(Suite):
    """On input, weight, bias and, for a step, a gradient of the output; a step gives the gradients of weight, input
    and bias, and the output."""

    directions = ("forward", "both")

    def __init__(self, case: Case, device: torch.device) -> None:
        super().__init__(case, device)
        torch.backends.cuda.matmul.allow_tf32 = case.tf32  # which calls and the compiler ask for

    @property
    def input_bytes(self) -> int:
        rows, inside, out = self.case.shape
        return (rows + out) * inside * self.case.dtype.itemsize

    def inputs(self, generator: torch.Generator) -> Inputs:
        """Logits are above 0, so that it shows which were dropped."""
        rows, inside, out = self.case.shape
        options = {"dtype": self.case.dtype, "device": self.device, "generator": generator}
        weight = torch.randn(out, inside, **options).div_(math.sqrt(inside))
        tensors = torch.randn(rows, inside, **options), weight, torch.rand(out, **options).add_(4)
        return tensors if self.case.forward else (*tensors, torch.randn(rows, out, **options))

    def calls(self) -> dict[str, Call]:
        return {"warpfuse": self.plugin(), "aten": self.to_compile()}

    def plugin(self) -> Call:
        """Ours."""
        ops = torch.ops.warpfuse
        if self.case.forward:
            return lambda *inputs: ops.linear_dropout_softmax(*inputs, P, True)

        def step(x, weight, bias, grad):
            output, rng = ops._linear_dropout_softmax(x, weight, bias, P)
            nothing = output.new_empty(0)
            return _gradients(x, weight, ops._dropout_softmax_backward(grad, output, nothing, rng, -1, P, False), output)

        return step

    def to_compile(self) -> Call:
        """The steps one by one, as autograd calls them."""
        if self.case.forward:
            return lambda x, weight, bias: torch.softmax(F.dropout(F.linear(x, weight, bias), P), -1)
        aten = torch.ops.aten

        def step(x, weight, bias, grad):
            dropped, keep = aten.native_dropout(F.linear(x, weight, bias), P, True)
            output = torch.softmax(dropped, -1)
            grad_dropped = aten._softmax_backward_data(grad, output, -1, output.dtype)
            return _gradients(x, weight, aten.native_dropout_backward(grad_dropped, keep, KEPT), output)

        return step

    def error(self, inputs: Inputs, result: Result) -> float:
        x, weight, bias, *grad = (tensor.double() for tensor in inputs)
        logits = F.linear(x, weight, bias)
        output, gradients = (result, ()) if self.case.forward else (result[-1], result[:-1])
        shapes = [tensor.shape for tensor in (weight, x, bias)] if gradients else []
        tensors = isinstance(output, torch.Tensor) and output.shape == logits.shape
        if not tensors or [tensor.shape for tensor in gradients] != shapes:
            return math.inf
        if any(tensor.dtype != self.case.dtype for tensor in (output, *gradients)):
            return math.inf
        keep = kept_before(logits, output.double(), -1)
        if rate_is_off(keep):
            return math.inf
        right, size = of_rounded(logits * keep * KEPT, -1)
        size *= TOLERANCE[torch.float16] / TOLERANCE[torch.float32] if self.case.tf32 else 1.0  # which is as precise
        worst = [worst_of(output, right, size)]
        if gradients:
            value, terms = (term * keep * KEPT for term in gradient(grad[0], right, -1))
            of_size = _gradients(x.abs(), weight.abs(), terms * (size / right), right)
            worst += map(worst_of, gradients, _gradients(x, weight, value, right), of_size)
        return math.nan if any(map(math.isnan, worst)) else max(worst)


def _gradients(x: torch.Tensor, weight: torch.Tensor, grad: torch.Tensor, output: torch.Tensor) -> Result:
    """A step's results from the gradient of the logits."""
    return grad.t() @ x, grad @ weight, grad.sum(0), output
