"""Puts known words where WikiText-2 has "<unk>", so that a model trained on it writes none.

Every sixteenth word of the tokenised variant is "<unk>", mostly a name. Left in, it would be the
likeliest word of many places; left out, sentences break. So each is replaced by a word that the
training text has between the same two neighbours, or else beside one of them.
"""

import random
from collections import Counter, defaultdict

UNKNOWN = "<unk>"
_EDGE = ""  # the neighbour of a line's first and last word


def _merge_runs(words: list[str]) -> list[str]:
    """Several unknown words in a row count as one."""
    return [w for i, w in enumerate(words) if w != UNKNOWN or i == 0 or words[i - 1] != UNKNOWN]


class UnknownWords:
    """Bigram counts of the training text, and the replacement drawn from them."""

    def __init__(self, lines: list[str], seed: int = 0) -> None:
        self._after: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._before: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._count: Counter[str] = Counter()
        self._random = random.Random(seed)
        for line in lines:
            words = [_EDGE, *line.split(), _EDGE]
            self._count.update(words)
            for left, right in zip(words, words[1:]):
                if UNKNOWN not in (left, right):
                    self._after[left][right] += 1
                    self._before[right][left] += 1
        self._function_words = {w for w, _ in self._count.most_common(80) if w.islower()}

    def fill(self, line: str) -> tuple[list[str], list[bool]]:
        """The words of a line without "<unk>", and which of them were put in."""
        words = _merge_runs(line.split())
        filled = [word == UNKNOWN for word in words]
        for index, unknown in enumerate(filled):
            if unknown:
                left = words[index - 1] if index else _EDGE
                right = words[index + 1] if index + 1 < len(words) else _EDGE
                words[index] = self._between(left, right)
        return words, filled

    def _between(self, left: str, right: str) -> str:
        """A word that follows left and precedes right, or one of both; rarer words preferred."""
        after = self._fitting(self._after[left])
        before = self._fitting(self._before[right])
        choices = {w: after[w] * before[w] for w in after.keys() & before.keys()}
        if not choices and left.istitle():  # most likely a name
            choices = {w: n for w, n in before.items() if w.istitle()}
        choices = choices or after or before or {"others": 1}
        words = sorted(choices)
        return self._random.choices(words, [choices[w] / max(1, self._count[w]) for w in words])[0]

    def _fitting(self, neighbours: Counter[str]) -> dict[str, int]:
        """The neighbours that may stand in for a name: no mark, number or function word."""
        return {
            w: n for w, n in neighbours.items() if w.isalpha() and w not in self._function_words
        }
