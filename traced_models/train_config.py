"""Every number that decides the shipped model; `train.py --set name=value` tries others."""

from dataclasses import dataclass, fields
from typing import Self


@dataclass
class TrainConfig:
    """Shape, regularisation and schedule of one training run."""

    vocab_size: int = 4096
    context: int = 512
    layers: int = 8
    heads: int = 4
    width: int = 256

    dropout: float = 0.1
    weight_decay: float = 0.3
    # This share of the input tokens is replaced by others, drawn as often as the corpus has them.
    token_noise: float = 0.05
    # Weight of the loss against repeating what followed the same two tokens before.
    unlikelihood: float = 0.5
    label_smoothing: float = 0.0

    seed: int = 1
    steps: int = 3500
    batch: int = 16
    learning_rate: float = 2e-3
    warmup: int = 200
    # The weights that are evaluated and kept are an exponential average of the trained ones.
    average_decay: float = 0.995
    evaluate_every: int = 200
    # Which weights to keep: those of the lowest held-out loss, or the last.
    keep: str = "last"

    def override(self, assignments: list[str]) -> Self:
        """Apply `name=value` pairs; an unknown name or a bad value is a ValueError."""
        types = {field.name: field.type for field in fields(self)}
        for assignment in assignments:
            name, _, value = assignment.partition("=")
            if name not in types:
                known = ", ".join(types)
                raise ValueError(f"unknown setting {name!r}; known: {known}")
            setattr(self, name, types[name](value))
        return self
