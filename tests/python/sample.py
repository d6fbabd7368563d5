"""A call of an operator that the tests make: its arguments and what autograd gives with them."""

from dataclasses import dataclass, field, replace

import torch


@dataclass
class Sample:
    args: tuple
    kwargs: dict = field(default_factory=dict)
    # Whether autograd goes through it: all its floating tensors then require gradients.
    differentiable: bool = True
    # Whether central differences stay where the operator is defined.
    differences: bool = True
    # Whether its gradient has a gradient.
    second_order: bool = True

    def with_gradients(self):
        """The sample with fresh leaves that require gradients."""

        def leaf(value):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                return value.detach().clone().requires_grad_(self.differentiable)
            return value

        named = {name: leaf(value) for name, value in self.kwargs.items()}
        return replace(self, args=tuple(map(leaf, self.args)), kwargs=named)

    def tensors(self):
        values = (*self.args, *self.kwargs.values())
        return [value for value in values if isinstance(value, torch.Tensor) and value.requires_grad]


def without_gradients(*calls):
    return [Sample(arguments, differentiable=False) for arguments in calls]


def of_first_order(*calls):
    return [Sample(arguments, second_order=False) for arguments in calls]


def randn(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


def floats(*shape):
    return randn(*shape, dtype=torch.float32)


def mask_arguments():
    """Keyword arguments of scaled_masked_softmax for scores [2, 2, 3, 4]."""
    visible = torch.rand(2, 1, 3, 4) > 0.3
    return [
        {},
        {"scale": 0.5, "causal": "upper_left"},
        {"causal": "lower_right", "window": 2},
        {"attn_mask": visible},
        {"attn_mask": visible, "masked_value": -0.5},
        {"scale": 0.3, "attn_mask": randn(2, 1, 4), "causal": "lower_right"},
        {"query_positions": torch.tensor([[0, 2, -1], [3, 9, 1]])},
        {"key_lengths": torch.tensor([0, 3], dtype=torch.int32)},
    ]


def every_mask_argument(arguments):
    """The same with those that have defaults."""
    tensors = dict.fromkeys(("attn_mask", "query_positions", "key_lengths"))
    return {**tensors, "scale": 1.0, "causal": "none", "window": 0, "masked_value": None, **arguments}
