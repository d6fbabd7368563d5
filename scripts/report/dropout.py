"""The table of softmax with dropout: beside ATen, and beside the softmax or the linear alone."""

from .markdown import Column, paired_table
from .model import Bench, Row
from .numbers import NOTHING, microseconds, percent
from .tables import copy_ratio, memory_beside, speed_up, spread, time_of, verdicts
from .targets import Peers

# What is timed alone in the same run, by operator.
ALONE = {
    "dropout_softmax": "softmax",
    "softmax_dropout": "softmax",
    "linear_dropout_softmax": "linear",
}
# Their rows are of a preset of their own, which a run may leave out.
NO_ROWS = "Not measured in this run."


def _alone(row: Row) -> str:
    name = ALONE[row.key.operator]
    time = time_of(name)(row)
    return f"{time} {name}" if row.time(name) else time


def _added(row: Row) -> str:
    """What ours takes longer than that."""
    alone, ours = row.time(ALONE[row.key.operator]), row.time("warpfuse")
    if not (alone and ours):
        return NOTHING
    return f"{'−' if ours < alone else '+'}{microseconds(abs(ours - alone))}"


def _memory_alone(row: Row) -> str:
    return memory_beside(ALONE[row.key.operator])(row)


def dropout_table(bench: Bench, peers: Peers) -> str:
    """The operators with dropout over the preset; `both` is a training step."""
    rows = [row for row in bench.preset("dropout") if row.key.operator in ALONE]

    def figures(row: Row) -> str:
        return ", ".join(verdict.mark for verdict in verdicts(row, bench, peers)) or NOTHING

    columns: list[Column] = [
        (">floor us", lambda row: microseconds(row.floor)),
        (">warpfuse us", lambda row: spread(row, "warpfuse")),
        (">share", lambda row: percent(row.share("warpfuse"))),
        (">of a copy", copy_ratio),
        (">ATen us", time_of("aten")),
        (">speed-up", speed_up("aten")),
        (">alone us", _alone),
        (">on top us", _added),
        (">MB beside", memory_beside("warpfuse")),
        (">ATen", memory_beside("aten")),
        (">alone", _memory_alone),
        ("figure", figures),
    ]
    return paired_table(rows, columns) if rows else NO_ROWS
