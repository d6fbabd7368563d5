"""vocab.json, merges.txt and added_tokens.json for a bundle, from whatever a model folder has."""

import json
from pathlib import Path
from typing import Any

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


def _text_of(token: Any, where: Path) -> str:
    """A token as Hugging Face writes it: its text, or an object with flags."""
    raw = token if isinstance(token, dict) else {"content": token}
    text = raw.get("content")
    if not isinstance(text, str) or not text:
        raise ModelError(f"{where}: expected a token, got {token!r:.60}")
    for flag in ("lstrip", "rstrip", "single_word"):
        if raw.get(flag):
            raise ModelError(f"{where}: added token {text!r}: {flag} is not supported")
    return text


def _added_tokens(folder: Path, vocab: dict[str, int]) -> dict[str, int]:
    """Tokens that stand for a text of their own; <|endoftext|> of the vocabulary always does."""
    tokens: dict[str, int] = {}
    file = folder / "added_tokens.json"
    if file.is_file():
        tokens.update({_text_of(text, file): index for text, index in read_json_object(file).items()})
    file = folder / "tokenizer.json"
    if file.is_file():
        added = read_json_object(file).get("added_tokens", [])
        tokens.update({_text_of(token, file): token["id"] for token in added})
    file = folder / "special_tokens_map.json"
    if file.is_file():
        for role, value in read_json_object(file).items():
            for token in value if isinstance(value, list) else [value]:
                text = _text_of(token, file)
                index = tokens.get(text, vocab.get(text))
                if index is None:
                    raise ModelError(f"{file}: {role} {text!r} has no id in the vocabulary")
                tokens[text] = index
    if tokens.get(END_OF_TEXT) == vocab.get(END_OF_TEXT):
        tokens.pop(END_OF_TEXT, None)
    return tokens


def find_tokenizer(folder: Path) -> dict[str, bytes] | None:
    """The tokenizer's files of a folder, or None if it has no tokenizer."""
    files = None
    for vocab, merges in _NAMES:
        if files is None and (folder / vocab).is_file() and (folder / merges).is_file():
            files = {
                "vocab.json": (folder / vocab).read_bytes(),
                "merges.txt": (folder / merges).read_bytes(),
            }
    if files is None and (folder / "tokenizer.json").is_file():
        files = _from_tokenizer_json(folder / "tokenizer.json")
    if files is not None:
        added = _added_tokens(folder, _vocabulary(files))
        if added:
            files["added_tokens.json"] = json.dumps(added, ensure_ascii=False).encode()
    return files


def byte_tokenizer(vocab_size: int) -> dict[str, bytes]:
    """A tokenizer of single bytes and <|endoftext|>, for random weights that have none."""
    if vocab_size < 257:
        raise ModelError(f"vocab_size {vocab_size} has no room for 256 bytes and {END_OF_TEXT}")
    return _encode({c: i for i, c in enumerate([*byte_characters(), END_OF_TEXT])}, [])


def _vocabulary(files: dict[str, bytes]) -> dict[str, int]:
    try:
        vocab = {text: int(index) for text, index in json.loads(files["vocab.json"]).items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise ModelError(f"vocab.json is no vocabulary: {error}") from error
    if not vocab:
        raise ModelError("vocab.json is no vocabulary: it is empty")
    return vocab


def check_vocabulary(files: dict[str, bytes], vocab_size: int) -> None:
    """A ModelError when the vocabulary has ids that the model does not."""
    added = json.loads(files.get("added_tokens.json", b"{}"))
    for name, tokens in {"vocab.json": _vocabulary(files), "added_tokens.json": added}.items():
        largest = max(tokens.values(), default=-1)
        if largest >= vocab_size:
            raise ModelError(f"{name} has id {largest}, but the model's vocab_size is {vocab_size}")
