"""Trains the small model's byte-level BPE and writes it in GPT-2's form: vocab.json, merges.txt.

Ids 0..255 are the bytes in GPT-2's order, then one id a merge, and <|endoftext|> is the last id.
"""

import json
from pathlib import Path

from corpus import END_OF_TEXT
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers


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
