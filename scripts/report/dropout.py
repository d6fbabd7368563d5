"""The table of softmax with dropout: beside ATen, and beside the softmax or the linear alone."""

from .alone import ALONE, alone_time, us_on_top
from .markdown import Column, paired_table
from .model import Bench, Row
from .numbers import NOTHING, microseconds, percent
from .tables import copy_ratio, figures_of, memory_beside, speed_up, spread, time_of
from .targets import Peers


def _alone(row: Row) -> str:
    name = ALONE[row.key.operator]
    time = time_of(name)(row)
    return f"{time} {name}" if alone_time(row) else time


def _added(row: Row) -> str:
    added = us_on_top(row)
    if added is None:
        return NOTHING
    return f"{'−' if added < 0 else '+'}{microseconds(abs(added))}"


def _memory_alone(row: Row) -> str:
    return memory_beside(ALONE[row.key.operator])(row)


def dropout_table(bench: Bench, peers: Peers) -> str:
    """The operators with dropout over the preset; `both` is a training step."""
    rows = [row for row in bench.preset("dropout") if row.key.operator in ALONE]
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
        ("target", figures_of(bench, peers)),
    ]
    return paired_table(rows, columns) if rows else ""
