"""What a GPU moves of causal scores: it reads memory in sectors, of which a row's visible part may fill some in part."""

import math

from .run import Row

SECTOR = 32  # bytes
ELEMENT = {"float64": 8, "float32": 4, "tf32": 4, "float16": 2, "bfloat16": 2}


def least_of_sectors(row: Row) -> float | None:
    """The least bytes of a row with a causal mask, where a sector counts in full that is read in part."""
    if row.key.mask != "causal":
        return None
    *batch, queries, keys = row.key.shape
    size = ELEMENT[row.key.dtype]
    count, heads = math.prod(batch), SECTOR // math.gcd(queries * keys * size, SECTOR)
    visible = touched = after = 0  # `after`: the sector behind the last one that was touched
    for query in range(heads * queries):  # after so many heads a head begins with a sector again
        begin, length = query * keys * size, min(query % queries + 1, keys) * size
        end = -(-(begin + length) // SECTOR)
        visible += length
        touched += (end - max(begin // SECTOR, after)) * SECTOR
        after = end
    inputs = 1 if row.direction == "forward" else 2  # scores, or the output and its gradient
    return row.least_bytes + inputs * (touched - visible) * count / heads
