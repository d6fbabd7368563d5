"""What a file of an operator gives: inputs, implementations and the check of their results."""

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import ModuleType
from typing import ClassVar

import torch

from .cases import Case

Result = torch.Tensor | tuple[torch.Tensor, ...]
Inputs = tuple[torch.Tensor, ...]
Call = Callable[..., Result]  # of one set of inputs


class Suite(ABC):
    """An operator on a case."""

    masks: ClassVar[tuple[str, ...]] = ("none",)  # that its cases may have
    directions: ClassVar[tuple[str, ...]] = ("forward", "backward")

    def __init__(self, case: Case, device: torch.device) -> None:
        self.case, self.device = case, device

    @classmethod
    def takes(cls, case: Case) -> bool:
        """Whether it has implementations for a case."""
        return case.mask in cls.masks and case.direction in cls.directions

    @property
    def input_bytes(self) -> int:
        """Of the large inputs of a call: the scores, or a gradient and the output."""
        return (1 if self.case.forward else 2) * math.prod(self.case.shape) * self.case.dtype.itemsize

    @abstractmethod
    def inputs(self, generator: torch.Generator) -> Inputs:
        """Random ones, each in memory of its own."""

    @abstractmethod
    def calls(self) -> dict[str, Call]:
        """Implementations that take the case, ours first."""

    @abstractmethod
    def to_compile(self) -> Call:
        """What torch.compile is given."""

    def as_asked(self, _name: str, result: Result) -> Result:
        """An implementation's result as the check takes it."""
        return result

    @abstractmethod
    def error(self, inputs: Inputs, result: Result) -> float:
        """The largest error against float64 in what is allowed; NaN if there is one in it."""

    def random(self, generator: torch.Generator) -> torch.Tensor:
        """Of the case's shape and dtype."""
        return torch.randn(self.case.shape, dtype=self.case.dtype, device=self.device, generator=generator)

    def fits(self, result: Result) -> bool:
        """Whether a result is a tensor of the case's shape and dtype."""
        tensor = isinstance(result, torch.Tensor)
        return tensor and result.shape == self.case.shape and result.dtype == self.case.dtype


def installed(module: str) -> ModuleType | None:
    """A module of another project, if it is there."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None
