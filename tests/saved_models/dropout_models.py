"""Models of softmax with dropout."""

import torch
from torch import Tensor

from formulas import hidden_softmax, plain_factors, plain_softmax, row_statistics


class DropoutSoftmax(torch.nn.Module):
    """What does not depend on chance: everything dropped, and nothing."""

    def __init__(self):
        super().__init__()
        self.register_buffer("x", torch.randn(3, 5))
        self.register_buffer(
            "expected", torch.cat([torch.full((3, 5), 0.2).double(), plain_softmax(self.x.double(), 1)])
        )

    def forward(self) -> Tensor:
        dropped = torch.ops.warpfuse.dropout_softmax(self.x, 1, 1.0, True)
        return torch.cat([dropped, torch.ops.warpfuse.dropout_softmax(self.x, -1, 0.5, False)])


class SoftmaxDropout(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("x", torch.randn(3, 5))
        self.register_buffer(
            "expected", torch.cat([torch.zeros(3, 5).double(), plain_softmax(self.x.double(), 0)])
        )

    def forward(self) -> Tensor:
        dropped = torch.ops.warpfuse.softmax_dropout(self.x, 1, 1.0, True)
        return torch.cat([dropped, torch.ops.warpfuse.softmax_dropout(self.x, 0, 0.5, False)])


class LinearDropoutSoftmax(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("x", torch.randn(3, 5))
        self.register_buffer("weight", torch.randn(4, 5))
        self.register_buffer("bias", torch.randn(4))
        logits = self.x.double() @ self.weight.double().T
        kept = plain_softmax(logits + self.bias.double(), 1)
        self.register_buffer("expected", torch.cat([torch.full((3, 4), 0.25).double(), kept]))

    def forward(self) -> Tensor:
        dropped = torch.ops.warpfuse.linear_dropout_softmax(self.x, self.weight, None, 1.0, True)
        kept = torch.ops.warpfuse.linear_dropout_softmax(
            self.x, self.weight, self.bias, 0.5, False
        )
        return torch.cat([dropped, kept])


class ScaledMaskedSoftmaxDropout(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scores", torch.randn(2, 2, 3, 4))
        self.register_buffer("visible", torch.rand(2, 1, 3, 4) > 0.3)
        self.register_buffer("positions", torch.tensor([[0, 2, -1], [3, 9, 1]]))
        self.register_buffer("lengths", torch.tensor([4, 2], dtype=torch.int32))
        filled = (self.scores.double() * 0.5).masked_fill(~self.visible, -2.0)
        key, own = torch.arange(4).view(1, 4), self.positions.clamp(-1, 3).view(2, 1, 3, 1)
        seen = (key <= own) & (key < self.lengths.view(2, 1, 1, 1)) & (key > own - 2)
        kept = hidden_softmax(filled, seen)
        self.register_buffer("expected", torch.cat([torch.zeros_like(kept), kept]))

    def forward(self) -> Tensor:
        dropped = torch.ops.warpfuse.scaled_masked_softmax_dropout(
            self.scores, 1.0, None, "upper_left", None, None, 0, None, 1.0, True
        )
        kept = torch.ops.warpfuse.scaled_masked_softmax_dropout(
            self.scores, 0.5, self.visible, "none", self.positions, self.lengths, 2, -2.0, 0.3, False
        )
        return torch.cat([dropped, kept])


class DropoutSoftmaxWithRng(torch.nn.Module):
    """Both orders with given random numbers: output, statistics and rng."""

    def __init__(self):
        super().__init__()
        self.register_buffer("x", torch.randn(3, 5))
        self.register_buffer("rng", torch.tensor([7, 4]))
        factors = plain_factors((3, 5), 0.3, self.rng)
        x = self.x.double()
        parts = [plain_softmax(x * factors, 0), self.rng.double()]
        parts += [plain_softmax(x, 1) * factors, row_statistics(x), self.rng.double()]
        self.register_buffer("expected", torch.cat([part.flatten() for part in parts]))

    def forward(self) -> Tensor:
        first, none, rng = torch.ops.warpfuse._dropout_softmax(self.x, 0, 0.3, False, self.rng)
        last, rows, used = torch.ops.warpfuse._dropout_softmax(self.x, 1, 0.3, True, self.rng)
        return torch.cat([
            first.flatten(), none, rng.float(), last.flatten(), rows.flatten(), used.float()
        ])


class DropoutSoftmaxBackward(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("grad", torch.randn(3, 5))
        self.register_buffer("x", torch.randn(3, 5))
        self.register_buffer("rng", torch.tensor([7, 4]))
        factors = plain_factors((3, 5), 0.3, self.rng)
        g, x = self.grad.double(), self.x.double()
        y = plain_softmax(x * factors, 1).float()
        self.register_buffer("output", y)
        self.register_buffer("statistics", row_statistics(x).float())
        y, s, h = y.double(), plain_softmax(x, 1), g * factors
        first = factors * y * (g - (g * y).sum(1, True))
        self.register_buffer("expected", torch.cat([first, s * (h - (h * s).sum(1, True))]))

    def forward(self) -> Tensor:
        first = torch.ops.warpfuse._dropout_softmax_backward(
            self.grad, self.output, self.statistics, self.rng, 1, 0.3, False
        )
        last = torch.ops.warpfuse._dropout_softmax_backward(
            self.grad, self.x, self.statistics, self.rng, 1, 0.3, True
        )
        return torch.cat([first, last])


class LinearDropoutSoftmaxWithRng(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("x", torch.randn(3, 5))
        self.register_buffer("weight", torch.randn(4, 5))
        self.register_buffer("bias", torch.randn(4))
        self.register_buffer("rng", torch.tensor([7, 4]))
        logits = self.x.double() @ self.weight.double().T + self.bias.double()
        y = plain_softmax(logits * plain_factors((3, 4), 0.3, self.rng), 1)
        self.register_buffer("expected", torch.cat([y.flatten(), self.rng.double()]))

    def forward(self) -> Tensor:
        output, rng = torch.ops.warpfuse._linear_dropout_softmax(
            self.x, self.weight, self.bias, 0.3, self.rng
        )
        return torch.cat([output.flatten(), rng.float()])


class ScaledMaskedSoftmaxDropoutWithRng(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scores", torch.randn(2, 2, 3, 4))
        self.register_buffer("bias", torch.randn(3, 4))
        self.register_buffer("lengths", torch.tensor([4, 0]))
        self.register_buffer("rng", torch.tensor([7, 4]))
        logits = self.scores.double() * 0.5 + self.bias.double()
        seen = torch.arange(4).view(1, 4) <= torch.arange(3).view(3, 1) + 1
        seen = seen & (torch.arange(4) < self.lengths.view(2, 1, 1, 1))
        factors = plain_factors((2, 2, 3, 4), 0.3, self.rng)
        output = hidden_softmax(logits, seen) * factors
        self.register_buffer("expected", torch.cat([output.flatten(), self.rng.double()]))

    def forward(self) -> Tensor:
        output, statistics, rng = torch.ops.warpfuse._scaled_masked_softmax_dropout(
            self.scores, 0.5, self.bias, "lower_right", None, self.lengths, 0, None, 0.3, self.rng
        )
        return torch.cat([output.flatten(), rng.float()])


class ScaledMaskedSoftmaxDropoutBackward(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("grad", torch.randn(2, 3, 4))
        self.register_buffer("scores", torch.randn(2, 3, 4))
        self.register_buffer("visible", torch.rand(2, 3, 4) > 0.3)
        self.visible[..., 0] = True
        self.register_buffer("rng", torch.tensor([7, 4]))
        seen = self.visible & (torch.arange(4).view(1, 4) <= torch.arange(3).view(3, 1))
        logits = (self.scores.double() * 0.5).masked_fill(~seen, -torch.inf)
        self.register_buffer("statistics", row_statistics(logits).float())
        s = hidden_softmax(logits, seen)
        h = self.grad.double() * plain_factors((2, 3, 4), 0.3, self.rng)
        self.register_buffer("expected", 0.5 * s * (h - (h * s).sum(-1, True)))

    def forward(self) -> Tensor:
        return torch.ops.warpfuse._scaled_masked_softmax_dropout_backward(
            self.grad, self.scores, self.statistics, self.rng, 0.5, self.visible, "upper_left",
            None, None, 0, None, 0.3
        )


class DropoutMask(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rng", torch.tensor([7, 4]))
        self.register_buffer("like", torch.zeros(40, 50))
        self.register_buffer("expected", (plain_factors((40, 50), 0.3, self.rng) != 0).double())

    def forward(self) -> Tensor:
        return torch.ops.warpfuse._dropout_mask(self.like, 0.3, self.rng).double()
