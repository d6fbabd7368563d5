"""Markdown tables whose rows hold a forward and a backward pass."""

from collections.abc import Callable, Iterable

from .model import DIRECTIONS, Key, Row
from .numbers import NOTHING

NAMED = (
    "log_softmax",
    "fused_logprob",
    "dropout_softmax",
    "softmax_dropout",
    "linear_dropout_softmax",
)
Pair = dict[str, Row]
Column = tuple[str, Callable[[Row], str]]


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    """A table; numbers and their headers are aligned to the right by the marker `>`."""
    right = [name.startswith(">") for name in header]
    lines = [
        "| " + " | ".join(name.lstrip(">") for name in header) + " |",
        "|" + "|".join("--:" if is_right else "---" for is_right in right) + "|",
    ]
    for row in rows:
        lines.append(
            "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in row) + " |"
        )
    return "\n".join(lines)


def pairs(rows: Iterable[Row]) -> list[tuple[Key, Pair]]:
    """Forward and backward of the same key together, in the order of the file."""
    found: dict[Key, Pair] = {}
    for row in rows:
        found.setdefault(row.key, {})[row.direction] = row
    return list(found.items())


def both(pair: Pair, cell: Callable[[Row], str]) -> str:
    """The cells of the passes, one above the other."""
    if len(pair) == 1:
        return cell(next(iter(pair.values())))
    return "<br>".join(cell(pair[direction]) for direction in DIRECTIONS if direction in pair)


def paired_table(rows: list[Row], columns: list[Column]) -> str:
    """A line for each shape and dtype; columns without any value are left out."""
    lines = [
        [name_of(key), key.dtype, passes(pair), *(both(pair, cell) for _, cell in columns)]
        for key, pair in pairs(rows)
    ]
    return known_table(["shape", "dtype", "pass", *(name for name, _ in columns)], lines)


def known_table(header: list[str], lines: list[list[str]]) -> str:
    """A table whose columns without any value are left out."""
    keep = [
        i
        for i in range(len(header))
        if any(line[i].replace("<br>", "").replace(NOTHING, "").strip() for line in lines)
    ]
    return table([header[i] for i in keep], [[line[i] for i in keep] for line in lines])


def passes(pair: Pair) -> str:
    """The passes of a pair, one above the other."""
    return "<br>".join(direction for direction in DIRECTIONS if direction in pair)


def name_of(key: Key) -> str:
    """The shape, its mask, and the operator where neither tells."""
    name = key.label
    if key.mask != "none":
        name += f" {key.mask}"
    elif key.operator == "scaled_masked_softmax":
        name += " no mask"
    return f"{key.operator} {name}" if key.operator in NAMED else name
