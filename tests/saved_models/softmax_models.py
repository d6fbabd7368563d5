"""Models of the softmaxes."""

import torch
from torch import Tensor

from formulas import hidden_softmax, plain_softmax


class Softmax(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("x", torch.randn(3, 5))
        self.register_buffer("expected", plain_softmax(self.x.double(), 1))

    def forward(self) -> Tensor:
        return torch.ops.warpfuse.softmax(self.x, -1, None)


class LogSoftmax(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("x", torch.randn(3, 5))
        self.register_buffer("expected", plain_softmax(self.x.double(), 0).log())

    def forward(self) -> Tensor:
        return torch.ops.warpfuse.log_softmax(self.x, 0, torch.float64)


class SoftmaxAlgorithm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("x", torch.randn(3, 5))
        self.register_buffer("expected", plain_softmax(self.x.double(), 1).log())

    def forward(self) -> Tensor:
        return torch.ops.warpfuse._softmax_algorithm(self.x, 1, "naive", True)


class SoftmaxBackward(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("grad", torch.randn(3, 5))
        self.register_buffer("output", plain_softmax(torch.randn(3, 5), 1))
        g, y = self.grad.double(), self.output.double()
        self.register_buffer("expected", y * (g - (g * y).sum(1, True)))

    def forward(self) -> Tensor:
        return torch.ops.warpfuse._softmax_backward(self.grad, self.output, 1)


class LogSoftmaxBackward(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("grad", torch.randn(3, 5))
        self.register_buffer("output", plain_softmax(torch.randn(3, 5), 1).log())
        g, y = self.grad.double(), self.output.double()
        self.register_buffer("expected", g - y.exp() * g.sum(1, True))

    def forward(self) -> Tensor:
        return torch.ops.warpfuse._log_softmax_backward(self.grad, self.output, 1)


class ScaledMaskedSoftmax(torch.nn.Module):
    """Every argument in use: rules with a filling mask, rules with an additive one, and none."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scores", torch.randn(2, 2, 3, 4))
        self.register_buffer("visible", torch.rand(2, 1, 3, 4) > 0.3)
        self.register_buffer("bias", torch.randn(3, 4))
        self.register_buffer("positions", torch.tensor([[0, 2, -1], [3, 9, 1]]))
        self.register_buffer("lengths", torch.tensor([4, 2], dtype=torch.int32))

        logits = self.scores.double() * 0.5
        query, key = torch.arange(3).view(3, 1), torch.arange(4).view(1, 4)
        own = self.positions.clamp(-1, 3).view(2, 1, 3, 1)
        filled = logits.masked_fill(~self.visible, -2.0)
        seen = (key <= own) & (key < self.lengths.view(2, 1, 1, 1)) & (key > own - 2)
        lower_right = key <= query + 1
        results = [
            hidden_softmax(filled, seen),
            hidden_softmax(logits + self.bias.double(), lower_right),
            plain_softmax(self.scores.double(), -1),
        ]
        self.register_buffer("expected", torch.cat([result.flatten() for result in results]))

    def forward(self) -> Tensor:
        first = torch.ops.warpfuse.scaled_masked_softmax(
            self.scores, 0.5, self.visible, "none", self.positions, self.lengths, 2, -2.0
        )
        second = torch.ops.warpfuse.scaled_masked_softmax(
            self.scores, 0.5, self.bias, "lower_right", None, None, 0, None
        )
        third = torch.ops.warpfuse.scaled_masked_softmax(self.scores)
        return torch.cat([first.flatten(), second.flatten(), third.flatten()])


class ScaledMaskedSoftmaxBackward(torch.nn.Module):
    def __init__(self):
        super().__init__()
        seen = torch.arange(4).view(1, 4) <= torch.arange(3).view(3, 1)
        self.register_buffer("visible", torch.rand(2, 1, 3, 4) > 0.3)
        self.register_buffer("lengths", torch.tensor([4, 2]))
        seen = seen & self.visible & (torch.arange(4) < self.lengths.view(2, 1, 1, 1))
        self.register_buffer("grad", torch.randn(2, 2, 3, 4))
        self.register_buffer("output", hidden_softmax(torch.randn(2, 2, 3, 4), seen))
        g, y = self.grad.double(), self.output.double()
        self.register_buffer("expected", 0.5 * y * (g - (g * y).sum(-1, True)))

    def forward(self) -> Tensor:
        return torch.ops.warpfuse._scaled_masked_softmax_backward(
            self.grad, self.output, 0.5, self.visible, "upper_left", None, self.lengths, 0, None
        )
