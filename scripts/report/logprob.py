"""The table of fused_logprob: times, shares and memory beside ATen's two ways to the same."""

from .markdown import Column, paired_table
from .model import Bench, Row
from .numbers import NOTHING, microseconds, percent
from .tables import copy_ratio, figures_of, memory_beside, speed_up, spread, time_of
from .targets import Peers

OPERATOR = "fused_logprob"


def logprob_table(bench: Bench, peers: Peers) -> str:
    """fused_logprob over the heads of its preset; `both` is a forward and its backward."""
    rows = [row for row in bench.preset("logprob") if row.key.operator == OPERATOR]

    def peer(row: Row) -> str:
        found = peers.peer(row)
        return f"{microseconds(found.us)} {found.name}" if found else NOTHING

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
        (">MB beside", memory_beside("warpfuse")),
        (">in place", memory_beside("in_place")),
        (">ATen", memory_beside("aten")),
        ("best peer us", peer),
        ("target", figures_of(bench, peers)),
    ]
    return paired_table(rows, columns) if rows else ""
