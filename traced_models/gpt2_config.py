"""The settings of a GPT-2, read from Hugging Face's config.json; what is unknown is refused."""

from dataclasses import dataclass
from typing import Any, Self

from errors import ModelError

# Activations by Hugging Face's names; the value is gelu's `approximate`, or the function's name.
ACTIVATIONS = {
    "gelu_new": "tanh",
    "gelu_fast": "tanh",
    "gelu_pytorch_tanh": "tanh",
    "gelu": "none",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh_function",
}

# Rows of a matrix over a vocabulary: logits then begin at multiples of 16 bytes in every row, which
# the fast half-precision products ask for (GPT-2's 50257 take 65 us for 32 rows on an H200, 50304
# take 25).
_VOCABULARY_MULTIPLE = 64

_GPT2 = {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768}
BUILT_IN = {
    "gpt2": {**_GPT2, "n_layer": 12, "n_head": 12},
    "distilgpt2": {**_GPT2, "n_layer": 6, "n_head": 12},
    "tiny": {
        "model_type": "gpt2",
        "vocab_size": 257,
        "n_positions": 128,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 2,
    },
}


@dataclass(frozen=True)
class GPT2Config:
    """The settings that change what a GPT-2 computes."""

    vocab_size: int
    context: int
    width: int
    inner: int
    layers: int
    heads: int
    activation: str
    norm_epsilon: float
    scale_attention: bool
    scale_by_inverse_layer: bool
    tied_head: bool

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the embedding and the head."""
        return -(-self.vocab_size // _VOCABULARY_MULTIPLE) * _VOCABULARY_MULTIPLE

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Self:
        """Read Hugging Face's names, with the defaults of its GPT2Config."""
        if raw.get("model_type") != "gpt2":
            raise ModelError(f"config.json: expected model_type gpt2, got {raw.get('model_type')}")
        for name in ("reorder_and_upcast_attn", "add_cross_attention", "quantization_config"):
            if raw.get(name):
                raise ModelError(f"config.json: {name} is not supported")
        activation = raw.get("activation_function", "gelu_new")
        if activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ModelError(f"config.json: activation {activation!r} is not one of {known}")

        def integer(name: str, default: int) -> int:
            value = raw.get(name, default)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ModelError(f"config.json: {name} must be a positive integer, got {value!r}")
            return value

        epsilon = raw.get("layer_norm_epsilon", 1e-5)
        if isinstance(epsilon, bool) or not isinstance(epsilon, int | float):
            raise ModelError(f"config.json: layer_norm_epsilon must be a number, got {epsilon!r}")
        width, heads = integer("n_embd", 768), integer("n_head", 12)
        if width % heads:
            raise ModelError(f"config.json: n_embd {width} is no multiple of n_head {heads}")
        return cls(
            vocab_size=integer("vocab_size", 50257),
            context=integer("n_positions", 1024),
            width=width,
            inner=integer("n_inner", 4 * width) if raw.get("n_inner") else 4 * width,
            layers=integer("n_layer", 12),
            heads=heads,
            activation=activation,
            norm_epsilon=float(epsilon),
            scale_attention=bool(raw.get("scale_attn_weights", True)),
            scale_by_inverse_layer=bool(raw.get("scale_attn_by_inverse_layer_idx", False)),
            tied_head=bool(raw.get("tie_word_embeddings", True)),
        )
