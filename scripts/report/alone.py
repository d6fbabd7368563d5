"""The softmax or the linear that an operator with dropout adds to, timed alone in the same run."""

from .model import Row

# By operator; also which operators have one.
ALONE = {
    "dropout_softmax": "softmax",
    "softmax_dropout": "softmax",
    "linear_dropout_softmax": "linear",
}


def alone_time(row: Row) -> float | None:
    """Its median time."""
    name = ALONE.get(row.key.operator)
    return row.time(name) if name else None


def us_on_top(row: Row) -> float | None:
    """What ours takes longer than it; below 0 where ours is faster."""
    alone, ours = alone_time(row), row.time("warpfuse")
    return ours - alone if alone and ours else None
