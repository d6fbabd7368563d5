"""Models of ms_deform_attn."""

import torch
from torch import Tensor

from formulas import flat


class DeformInputs(torch.nn.Module):
    """Two levels, and what the operator gives, in float64."""

    def __init__(self):
        super().__init__()
        self.register_buffer("value", torch.randn(2, 22, 2, 4))
        self.register_buffer("shapes", torch.tensor([[4, 3], [2, 5]]))
        self.register_buffer("starts", torch.tensor([0, 12]))
        self.register_buffer("locations", torch.rand(2, 3, 2, 2, 3, 2) * 1.4 - 0.2)
        self.register_buffer("weights", torch.randn(2, 3, 2, 2, 3))
        self.wide = [
            tensor.double().requires_grad_() for tensor in (self.value, self.locations, self.weights)
        ]
        self.register_buffer("grad", torch.randn(2, 3, 8))

    def attended(self, weights):
        """grid_sample, as Deformable-DETR's Python has it."""
        value, locations, _ = self.wide
        output = 0
        for level, (height, width) in enumerate(self.shapes.tolist()):
            start = int(self.starts[level])
            image = value[:, start : start + height * width].permute(0, 2, 3, 1).flatten(0, 1)
            sampled = torch.nn.functional.grid_sample(
                image.unflatten(-1, (height, width)),
                2 * locations[:, :, :, level].transpose(1, 2).flatten(0, 1) - 1,
                align_corners=False,
            )
            level_weights = weights[:, :, :, level].transpose(1, 2).flatten(0, 1)
            output = output + (sampled * level_weights.unsqueeze(1)).sum(-1)
        return output.unflatten(0, (2, 2)).flatten(1, 2).transpose(1, 2)

    def softmax(self):
        weights = self.wide[2]
        return weights.flatten(-2).softmax(-1).view_as(weights)


class MsDeformAttn(DeformInputs):
    def __init__(self):
        super().__init__()
        self.register_buffer("expected", self.attended(self.wide[2]).detach())
        del self.wide

    def forward(self) -> Tensor:
        return torch.ops.warpfuse.ms_deform_attn(
            self.value, self.shapes, self.starts, self.locations, self.weights
        )


class MsDeformAttnSoftmax(DeformInputs):
    def __init__(self):
        super().__init__()
        self.register_buffer("expected", self.attended(self.softmax()).detach())
        del self.wide

    def forward(self) -> Tensor:
        return torch.ops.warpfuse.ms_deform_attn_softmax(
            self.value, self.shapes, self.starts, self.locations, self.weights
        )


class MsDeformAttnBackward(DeformInputs):
    def __init__(self):
        super().__init__()
        plain, softmax = self.attended(self.wide[2]), self.attended(self.softmax())
        self.register_buffer("output", softmax.detach().float())
        gradients = [
            gradient
            for output in (plain, softmax)
            for gradient in torch.autograd.grad(output, self.wide, self.grad.double(), True)
        ]
        self.register_buffer("expected", flat(*gradients))
        del self.wide

    def forward(self) -> Tensor:
        op = torch.ops.warpfuse._ms_deform_attn_backward
        a, b, c = op(
            self.grad, None, self.value, self.shapes, self.starts, self.locations, self.weights
        )
        d, e, f = op(
            self.grad, self.output, self.value, self.shapes, self.starts, self.locations, self.weights
        )
        return torch.cat([x.flatten() for x in (a, b, c, d, e, f)])
