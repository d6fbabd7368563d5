"""The corpus as token streams: windows to train on, and the exact scoring of held-out text."""

from dataclasses import dataclass

import torch
from corpus import END_OF_TEXT, Document
from tokenizers import Tokenizer
from torch import Tensor

IGNORE = -100


@dataclass
class Stream:
    """Articles one after the other, each opened by <|endoftext|>."""

    ids: Tensor  # i64[N]
    # i64[N]: the same ids, IGNORE where a held-out token stands in for "<unk>": it is not scored.
    targets: Tensor
    words: int
    scored_bytes: int


def build_stream(documents: list[Document], tokenizer: Tokenizer, score_filled: bool) -> Stream:
    """Encode the articles in order."""
    end_of_text = tokenizer.token_to_id(END_OF_TEXT)
    ids: list[int] = []
    targets: list[int] = []
    scored_bytes = 0
    for document in documents:
        encoding = tokenizer.encode(document.text)
        ignored = bytearray(len(document.text))  # a flag for each character
        for start, end in () if score_filled else document.filled:
            ignored[start:end] = b"\1" * (end - start)
        ids.append(end_of_text)
        targets.append(end_of_text)
        for token, piece, (start, end) in zip(encoding.ids, encoding.tokens, encoding.offsets):
            hidden = any(ignored[start:end])
            ids.append(token)
            targets.append(IGNORE if hidden else token)
            scored_bytes += 0 if hidden else len(piece)  # one character of a piece is one byte
    return Stream(
        ids=torch.tensor(ids),
        targets=torch.tensor(targets),
        words=sum(document.words for document in documents),
        scored_bytes=scored_bytes,
    )


def random_windows(
    stream: Stream, context: int, batch: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Input ids i64[batch, context] and the targets i64[batch, context] that follow them."""
    starts = torch.randint(len(stream.ids) - context, (batch, 1), generator=generator)
    index = starts + torch.arange(context + 1)
    return stream.ids[index[:, :-1]], stream.targets[index[:, 1:]]


def scoring_windows(stream: Stream, context: int, stride: int) -> tuple[Tensor, Tensor]:
    """Windows [W, context] that score each target once, with at least context - stride before it.

    The first `context - stride` targets of every window but the first are IGNORE; the tail that
    fills no window is scored by one that ends with the stream.
    """
    last = len(stream.ids) - 1 - context
    starts = [*range(0, last, stride), last]
    index = torch.tensor(starts)[:, None] + torch.arange(context + 1)
    inputs, targets = stream.ids[index[:, :-1]], stream.targets[index[:, 1:]].clone()
    for row in range(1, len(starts)):
        targets[row, : starts[row - 1] + context - starts[row]] = IGNORE
    return inputs, targets
