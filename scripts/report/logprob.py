"""The table of fused_logprob: times, shares and memory beside ATen's two ways to the same."""

from collections.abc import Callable

from .markdown import Column, paired_table
from .model import Bench, Row
from .numbers import NOTHING, megabytes, microseconds, percent
from .tables import copy_ratio, speed_up, spread, time_of, verdicts
from .targets import Peers

OPERATOR = "fused_logprob"
# Its rows are of a preset of their own, which a run may leave out.
NO_ROWS = "Not measured in this run."


def _beside(name: str) -> Callable[[Row], str]:
    """What a variant allocates beside its inputs and its result."""

    def cell(row: Row) -> str:
        variant = row.variants.get(name)
        return megabytes(variant.extra_bytes if variant else None)

    return cell


def logprob_table(bench: Bench, peers: Peers) -> str:
    """fused_logprob over the heads of its preset; `both` is a forward and its backward."""
    rows = [row for row in bench.preset("logprob") if row.key.operator == OPERATOR]

    def peer(row: Row) -> str:
        found = peers.peer(row)
        return f"{microseconds(found.us)} {found.name}" if found else NOTHING

    def figures(row: Row) -> str:
        return ", ".join(verdict.mark for verdict in verdicts(row, bench, peers)) or NOTHING

    columns: list[Column] = [
        (">floor us", lambda row: microseconds(row.floor)),
        (">warpfuse us", lambda row: spread(row, "warpfuse")),
        (">share", lambda row: percent(row.share("warpfuse"))),
        (">of a copy", copy_ratio),
        (">in place us", time_of("in_place")),
        (">log_softmax + gather us", time_of("aten")),
        (">speed-up", speed_up("aten")),
        (">cross_entropy us", time_of("cross_entropy")),
        (">speed-up", speed_up("cross_entropy")),
        (">MB beside", _beside("warpfuse")),
        (">in place", _beside("in_place")),
        (">ATen", _beside("aten")),
        ("best peer us", peer),
        ("figure", figures),
    ]
    return paired_table(rows, columns) if rows else NO_ROWS
