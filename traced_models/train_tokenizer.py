#!/usr/bin/env python3
"""Trains the small model's byte-level BPE and writes it in GPT-2's form: vocab.json, merges.txt.

Ids 0..255 are the bytes in GPT-2's order, then one id a merge, and <|endoftext|> is the last id.
"""

import argparse
import json
from pathlib import Path

from corpus import END_OF_TEXT, read_documents, read_lines
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from unknown_words import UnknownWords


def train_tokenizer(texts: list[str], vocab_size: int, out: Path) -> None:
    """Learn vocab_size - 257 merges from texts and write vocab.json and merges.txt into out."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocab_size - 1,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            special_tokens=[],
            show_progress=False,
        ),
    )
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.model.save(str(out))
    vocab = json.loads((out / "vocab.json").read_text(encoding="utf-8"))
    ordered = dict(sorted(vocab.items(), key=lambda item: item[1]))
    ordered[END_OF_TEXT] = len(ordered)
    (out / "vocab.json").write_text(json.dumps(ordered, ensure_ascii=False), encoding="utf-8")


def load_tokenizer(folder: Path) -> Tokenizer:
    """The byte-level BPE of a folder with vocab.json and merges.txt."""
    tokenizer = Tokenizer(
        models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, help="a WikiText file, for example wikitext-2/test.txt")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder to write into")
    parser.add_argument("--vocab-size", type=int, default=4096)
    arguments = parser.parse_args()
    lines = read_lines(arguments.text)
    texts = [document.text for document in read_documents(lines, UnknownWords(lines))]
    train_tokenizer(texts, arguments.vocab_size, arguments.out)


if __name__ == "__main__":
    main()
