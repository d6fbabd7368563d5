"""vocab.json and merges.txt for a bundle, from whatever a model folder has."""

import json
from pathlib import Path

from errors import ModelError
from json_file import read_json_object

END_OF_TEXT = "<|endoftext|>"

# (vocabulary, merges): Hugging Face's names, then OpenAI's for the same two files.
_NAMES = [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")]


def byte_characters() -> list[str]:
    """The printable character that stands for each byte, in the order of GPT-2's ids 0..255."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (b for b in range(256) if b not in printable)
    return [chr(b) for b in printable] + [chr(256 + n) for n, _ in enumerate(others)]


def _from_tokenizer_json(path: Path) -> dict[str, bytes]:
    """The two files out of a tokenizer.json, which newer tools write alone."""
    raw = read_json_object(path)
    if raw.get("model", {}).get("type") != "BPE":
        raise ModelError(f"{path}: expected a BPE tokenizer")
    vocab = dict(raw["model"]["vocab"])
    for token in raw.get("added_tokens", []):
        vocab[token["content"]] = token["id"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in raw["model"]["merges"]]
    return _encode(vocab, merges)


def _encode(vocab: dict[str, int], merges: list[str]) -> dict[str, bytes]:
    """Both files as bytes."""
    ordered = dict(sorted(vocab.items(), key=lambda item: item[1]))
    return {
        "vocab.json": json.dumps(ordered, ensure_ascii=False).encode(),
        "merges.txt": "\n".join(["#version: 0.2", *merges, ""]).encode(),
    }


def find_tokenizer(folder: Path) -> dict[str, bytes] | None:
    """vocab.json and merges.txt of a folder, or None if it has no tokenizer."""
    for vocab, merges in _NAMES:
        if (folder / vocab).is_file() and (folder / merges).is_file():
            return {
                "vocab.json": (folder / vocab).read_bytes(),
                "merges.txt": (folder / merges).read_bytes(),
            }
    if (folder / "tokenizer.json").is_file():
        return _from_tokenizer_json(folder / "tokenizer.json")
    return None


def byte_tokenizer(vocab_size: int) -> dict[str, bytes]:
    """A tokenizer of single bytes and <|endoftext|>, for random weights that have none."""
    if vocab_size < 257:
        raise ModelError(f"vocab_size {vocab_size} has no room for 256 bytes and {END_OF_TEXT}")
    return _encode({c: i for i, c in enumerate([*byte_characters(), END_OF_TEXT])}, [])


def check_vocabulary(files: dict[str, bytes], vocab_size: int) -> None:
    """A ModelError when the vocabulary has ids that the model does not."""
    try:
        largest = max(int(index) for index in json.loads(files["vocab.json"]).values())
    except (ValueError, AttributeError, TypeError) as error:
        raise ModelError(f"vocab.json is no vocabulary: {error}") from error
    if largest >= vocab_size:
        raise ModelError(f"vocab.json has id {largest}, but the model's vocab_size is {vocab_size}")
