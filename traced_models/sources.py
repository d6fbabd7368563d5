"""Where a model to export comes from: a local folder, the hub, or a config with random weights."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from end_tokens import find_end_tokens
from errors import ModelError, UsageError
from gpt2_config import BUILT_IN, GPT2Config
from json_file import read_json_object
from state_dict import read_weights
from tokenizer_files import byte_tokenizer, find_tokenizer
from torch import Tensor

_HUB_NAME = re.compile(r"^[\w.-]+(/[\w.-]+)?$")
_HUB_FILES = [
    "config.json",
    "generation_config.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.json",
    "added_tokens.json",
    "special_tokens_map.json",
    "model*.safetensors*",
]


@dataclass
class Source:
    """A model before export. Without tensors its weights are to be random."""

    name: str
    config: dict[str, Any]
    tensors: dict[str, Tensor] | None
    tokenizer: dict[str, bytes]
    end_tokens: list[int] | None  # None: the tokenizer's <|endoftext|>


def open_source(text: str, tokenizer: Path | None) -> Source:
    """What a SOURCE argument names; `tokenizer` is a folder whose tokenizer goes first."""
    if text.startswith("config:"):
        name, config = _named_config(text.removeprefix("config:"))
        vocab_size = GPT2Config.from_dict(config).vocab_size
        files = find_tokenizer(tokenizer) if tokenizer else byte_tokenizer(vocab_size)
        ends = find_end_tokens(config, None, vocab_size)
        return Source(name, config, None, _required(files, tokenizer), ends)
    folder = Path(text)
    if not folder.exists():
        if not _HUB_NAME.match(text):
            raise ModelError(f"{text}: no such folder")
        folder = _download(text)
    if not folder.is_dir():
        raise ModelError(f"{text}: expected a Hugging Face model folder, got a file")
    files = _required(find_tokenizer(tokenizer or folder), tokenizer or folder)
    name = Path(text).resolve().name if Path(text).exists() else text.split("/")[-1]
    config = read_json_object(folder / "config.json")
    ends = find_end_tokens(config, folder, GPT2Config.from_dict(config).vocab_size)
    return Source(name, config, read_weights(folder), files, ends)


def _required(files: dict[str, bytes] | None, folder: Path | None) -> dict[str, bytes]:
    if files is None:
        raise ModelError(f"{folder}: no vocab.json with merges.txt, and no tokenizer.json")
    return files


def _named_config(name: str) -> tuple[str, dict[str, Any]]:
    if name in BUILT_IN:
        return name, BUILT_IN[name]
    if not name.endswith(".json"):
        raise UsageError(f"config:{name}: expected {', '.join(BUILT_IN)} or a path to a .json file")
    return Path(name).stem, {"vocab_size": 50257, **read_json_object(Path(name))}


def _download(name: str) -> Path:
    """The folder of a hub model's snapshot; only safetensors weights are fetched."""
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except Exception as error:  # no network, no such model, no hub package: one line for each
        line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"{name}: no such folder, and the hub did not deliver it: {line}"
        ) from error
