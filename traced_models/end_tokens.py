"""Where a model's texts end: eos_token_id of Hugging Face's generation_config.json or config.json."""

from pathlib import Path
from typing import Any

from errors import ModelError
from json_file import read_json_object


def _ids(raw: dict[str, Any], where: str, vocab_size: int) -> list[int] | None:
    value = raw.get("eos_token_id")
    if value is None:
        return None
    ids = value if isinstance(value, list) else [value]
    for token in ids:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab_size:
            raise ModelError(
                f"{where}: eos_token_id must be token ids below vocab_size {vocab_size}, got {value!r}"
            )
    return ids


def find_end_tokens(
    config: dict[str, Any], folder: Path | None, vocab_size: int
) -> list[int] | None:
    """The ids, generation_config.json's first, as transformers takes them; None where no file says."""
    generation = folder / "generation_config.json" if folder else None
    if generation and generation.is_file():
        ids = _ids(read_json_object(generation), generation.name, vocab_size)
        if ids is not None:
            return ids
    return _ids(config, "config.json", vocab_size)
