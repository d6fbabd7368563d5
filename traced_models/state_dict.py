"""Weights from a local Hugging Face folder into the exporter's GPT-2, by name and strictly."""

import re
from pathlib import Path

import torch
from errors import ModelError
from gpt2 import GPT2, Conv1D
from gpt2_config import GPT2Config
from json_file import read_json_object
from torch import Tensor
from torch.nn import functional as F

_OF_VOCABULARY = ("transformer.wte.weight", "lm_head.weight")
# Causal-mask buffers that old checkpoints carry; causality follows from positions here.
_MASK_BUFFER = re.compile(r"^transformer\.h\.\d+\.attn\.(bias|masked_bias)$")


def _read_file(path: Path) -> dict[str, Tensor]:
    """The tensors of one .safetensors or .bin file."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the readers raise a dozen kinds for a truncated or foreign file
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(f"{path}: cannot read weights: {line}") from error
    if not isinstance(loaded, dict):
        raise ModelError(f"{path}: expected a state dict, got {type(loaded).__name__}")
    return loaded


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of model.safetensors or pytorch_model.bin, in one file or in shards."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return _read_file(folder / name)
        index = folder / f"{name}.index.json"
        if index.is_file():
            weight_map = read_json_object(index).get("weight_map")
            if not isinstance(weight_map, dict):
                raise ModelError(f"{index}: expected an object weight_map")
            tensors: dict[str, Tensor] = {}
            for shard in sorted(set(weight_map.values())):
                tensors.update(_read_file(folder / shard))
            return tensors
    raise ModelError(f"{folder}: neither model.safetensors nor pytorch_model.bin is there")


def _is_transposed(name: str, model: GPT2) -> bool:
    owner = model.get_submodule(name.rpartition(".")[0])
    return isinstance(owner, Conv1D) and owner.transposed and name.endswith(".weight")


def _given_shape(name: str, parameter: Tensor, model: GPT2) -> list[int]:
    """The shape that a checkpoint's tensor of this name has."""
    if name in _OF_VOCABULARY:
        return [model.config.vocab_size, model.config.width]
    shape = list(parameter.shape)
    return shape[::-1] if _is_transposed(name, model) else shape


def _arranged(name: str, tensor: Tensor, model: GPT2) -> Tensor:
    """A checkpoint's tensor as the model holds it."""
    config = model.config
    if name in _OF_VOCABULARY:
        return F.pad(tensor, (0, 0, 0, config.padded_vocab_size - config.vocab_size))
    if ".attn.c_attn." in name:  # columns [3,H,D] -> [H,3,D]
        columns = tensor.unflatten(-1, (3, config.heads, config.head_dim))
        tensor = columns.transpose(-3, -2).flatten(-3)
    return tensor.t() if _is_transposed(name, model) else tensor


def load_weights(model: GPT2, tensors: dict[str, Tensor], origin: str) -> None:
    """Copy tensors into model; a missing, surplus or misshapen tensor is a ModelError."""
    expected = dict(model.named_parameters())
    given = {}
    for name, tensor in tensors.items():
        full = name if name.startswith(("transformer.", "lm_head.")) else f"transformer.{name}"
        if not _MASK_BUFFER.match(full):
            given[full] = tensor
    head = given.get("lm_head.weight")
    embedding = given.get("transformer.wte.weight")
    if head is not None and model.lm_head is None:
        if embedding is not None and not torch.equal(head, embedding):
            raise ModelError(f"{origin}: lm_head.weight differs from wte.weight in a tied model")
        del given["lm_head.weight"]
    missing = sorted(expected.keys() - given.keys())
    surplus = sorted(given.keys() - expected.keys())
    if missing or surplus:
        kind, names = ("missing", missing) if missing else ("unexpected", surplus)
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise ModelError(f"{origin}: {kind} tensor {names[0]}{more}")
    with torch.no_grad():
        for name, parameter in expected.items():
            shape = _given_shape(name, parameter, model)
            got = list(given[name].shape)
            if got != shape:
                raise ModelError(f"{origin}: {name} expected shape {shape}, got {got}")
            parameter.copy_(_arranged(name, given[name], model))
