"""Bytes between the L2 cache and memory, from the comma-separated output of Nsight Compute."""

import csv
import io
import re
from dataclasses import dataclass

from .errors import ReportError

READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
UNIT = re.compile(r"(|k|m|g|t)(b|byte|bytes)", re.IGNORECASE)
FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}  # ncu's units are decimal


@dataclass
class Counted:
    """The sums over all kernels of a call."""

    read: float = 0
    written: float = 0
    kernels: int = 0


def to_bytes(value: str, unit: str) -> float:
    """1,234.5 and Kbyte to 1234500."""
    match = UNIT.fullmatch(unit.strip())
    try:
        number = float(value.replace(",", "").strip())
    except ValueError:
        raise ReportError(f"ncu: expected a number, got {value!r}") from None
    if not match:
        raise ReportError(f"ncu: expected a unit of bytes, got {unit!r}")
    return number * FACTORS[match[1].lower()]


def parse(output: str) -> Counted:
    """Of `ncu --csv`, whose table follows its own lines and those of the program.

    The page "details" has a line for each metric of a kernel; the page "raw" has a column for each
    metric, and the units in the line below the header.
    """
    lines = output.splitlines()
    start = next((i for i, line in enumerate(lines) if '"Kernel Name"' in line), None)
    if start is None:
        said = [line for line in lines if line.startswith("==ERROR==")]
        raise ReportError(
            f"ncu: {said[0].removeprefix('==ERROR==').strip()}"
            if said
            else "ncu: no kernel was profiled"
        )
    table = [line for line in lines[start:] if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("\n".join(table))))
    values = _by_line(rows) if rows and "Metric Name" in rows[0] else _by_column(rows)
    counted = Counted()
    kernels = set()
    for kernel, metric, amount in values:
        kernels.add(kernel)
        counted.read += amount if metric == READ else 0
        counted.written += amount if metric == WRITTEN else 0
    counted.kernels = len(kernels)
    if not kernels:
        raise ReportError("ncu: its output has neither of the memory counters")
    return counted


def _by_line(rows: list[dict[str, str]]) -> list[tuple[str, str, float]]:
    return [
        (row["ID"], row["Metric Name"], to_bytes(row["Metric Value"], row["Metric Unit"]))
        for row in rows
        if row["Metric Name"] in (READ, WRITTEN)
    ]


def _by_column(rows: list[dict[str, str]]) -> list[tuple[str, str, float]]:
    if not rows or READ not in rows[0] or WRITTEN not in rows[0]:
        return []
    units, *kernels = rows
    return [
        (row["ID"], name, to_bytes(row[name], units[name]))
        for row in kernels
        for name in (READ, WRITTEN)
    ]
