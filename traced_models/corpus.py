"""WikiText-2 as plain text: what the small model is trained on, and what of it is scored.

The files at hand are the word-tokenised variant (" @-@ ", " , ", "<unk>"). Here they become text as
a person writes it, so that a prompt typed at a terminal looks like what the model has seen.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from unknown_words import UnknownWords

END_OF_TEXT = "<|endoftext|>"

_TITLE = re.compile(r"^ = [^=].* = $")
_HEADING = re.compile(r"^(= )+.* =$")
_QUOTE = re.compile(r' ?" ?')

# Around a word that stands in for "<unk>", until the text is put together; no corpus has them.
_FILLED = re.compile("\ue000(.*?)\ue001")

# In this order: the marks of the tokenised variant, then the spaces around punctuation.
_RULES = [
    (re.compile(r" @([-,.])@ "), r"\1"),
    (re.compile(r" (['’]) ?(s|t|re|ve|ll|d|m)\b"), r"\1\2"),
    (re.compile(r"(s\ue001?) ' (?=[\w\ue000])"), r"\1' "),
    (re.compile(r" ([,.;:!?)\]%])"), r"\1"),
    (re.compile(r"([(\[]) "), r"\1"),
    (re.compile(r"([$£€¥#]) (?=\d)"), r"\1"),
    (re.compile(r"(?<=\d) – (?=\d)"), "–"),
]


@dataclass
class Document:
    """One article: its text, the known words it had, and the words that stand in for "<unk>"."""

    text: str
    words: int
    filled: list[tuple[int, int]]  # [start, end) of each, in characters of text


def _join_quotes(text: str) -> str:
    """Put each straight double quote against the words that it encloses."""
    opening = False

    def place(match: re.Match[str]) -> str:
        nonlocal opening
        opening = not opening
        return match[0].rstrip(" ") if opening else match[0].lstrip(" ")

    return _QUOTE.sub(place, text)


def detokenize(text: str) -> str:
    """One line of the tokenised variant as ordinary text; headings keep WikiText's own form."""
    is_heading = _HEADING.match(text)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    text = _join_quotes(text)
    return f"\n {text} \n" if is_heading else text


def _document(lines: list[str], unknown: UnknownWords) -> Document:
    """One article from its non-empty lines."""
    texts, known = [], 0
    for line in lines:
        words, filled = unknown.fill(line)
        known += filled.count(False)
        marked = [f"\ue000{w}\ue001" if f else w for w, f in zip(words, filled)]
        texts.append(detokenize(" ".join(marked)))
    pieces, spans, length = [], [], 0
    for index, piece in enumerate(_FILLED.split("\n".join(texts).lstrip("\n") + "\n")):
        if index % 2:  # re.split puts what the group matched at the odd places
            spans.append((length, length + len(piece)))
        pieces.append(piece)
        length += len(piece)
    return Document("".join(pieces), known, spans)


def read_lines(path: Path) -> list[str]:
    """The lines of a WikiText file."""
    return path.read_text(encoding="utf-8").split("\n")


def read_documents(lines: list[str], unknown: UnknownWords) -> list[Document]:
    """The articles of a WikiText file; each begins with its title, ` = Title = `."""
    articles: list[list[str]] = []
    for index, line in enumerate(lines):
        alone = not lines[index - 1].strip() and not "".join(lines[index + 1 : index + 2]).strip()
        if alone and _TITLE.match(line):
            articles.append([])
        if articles and line.strip():
            articles[-1].append(line)
    return [_document(article, unknown) for article in articles]
