"""The columns of the tables of operators, a cell for each row of a run, and the table that they make."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import geometric_mean

from .run import DIRECTIONS, Bench, Key, Row
from .targets import Peers, fastest, ratio
from .text import NOTHING, known_table, megabytes, microseconds, percent, times

Cell = Callable[[Row], str]
Column = tuple[str, Cell]


@dataclass(frozen=True)
class Ratio:
    """A cell that is a ratio, whose geometric mean stands at the foot."""

    of: Callable[[Row], float | None]
    show: Callable[[float | None], str]

    def __call__(self, row: Row) -> str:
        return self.show(self.of(row))

    def mean(self, rows: list[Row]) -> str:
        known = [value for row in rows if (value := self.of(row))]
        return self.show(geometric_mean(known) if known else None)


def paired_table(rows: Iterable[Row], columns: list[Column]) -> str:
    """A line per shape and dtype, its passes one above the other; and the ratios' means."""
    rows = list(rows)
    pairs: dict[Key, dict[str, Row]] = {}
    for row in rows:
        pairs.setdefault(row.key, {})[row.direction] = row
    lines = []
    for key, pair in pairs.items():
        passes = [direction for direction in DIRECTIONS if direction in pair]
        cells = ("<br>".join(cell(pair[direction]) for direction in passes) for _, cell in columns)
        lines.append([key.title, key.dtype, "<br>".join(passes), *cells])
    if len(rows) > 1:
        means = (cell.mean(rows) if isinstance(cell, Ratio) else "" for _, cell in columns)
        lines.append(["geometric mean", "", "", *means])
    return known_table(["shape", "dtype", "pass", *(name for name, _ in columns)], lines)


def time_of(name: str) -> Cell:
    """The median time of a variant, or its status."""

    def cell(row: Row) -> str:
        variant = row.variants.get(name)
        return NOTHING if variant is None else microseconds(variant.p50) if variant.p50 else variant.status

    return cell


def speed_up(name: str) -> Ratio:
    """How many times ours is faster than a variant."""
    return Ratio(lambda row: ratio(row.time(name), row.time("warpfuse")), times)


def error_of(name: str) -> Cell:
    """The largest error of a variant, as the check before the timing measures it."""

    def cell(row: Row) -> str:
        found = row.variants.get(name)
        return NOTHING if found is None or found.max_error is None else f"{found.max_error:.1e}"

    return cell


def beside(title: str, name: str) -> list[Column]:
    """A variant's time, and ours against it."""
    return [(f">{title} us", time_of(name)), (">speed-up", speed_up(name))]


def errors(title: str, name: str) -> list[Column]:
    """Our largest error, and a variant's."""
    return [(">largest error", error_of("warpfuse")), (f">{title}'s", error_of(name))]


def memory_of(title: str, name: str) -> Column:
    """What a variant allocates beside its inputs and its result."""

    def cell(row: Row) -> str:
        variant = row.variants.get(name)
        return megabytes(variant.extra_bytes if variant else None)

    return title, cell


def spread(row: Row) -> str:
    """Our median and, in brackets, the 5th and 95th percentile; else why there is none."""
    ours = row.variants.get("warpfuse")
    if ours is None or ours.p50 is None:
        return f"**{ours.status}**" if ours else NOTHING
    return f"{microseconds(ours.p50)} ({microseconds(ours.p5)}–{microseconds(ours.p95)})"


OURS: list[Column] = [
    (">floor us", lambda row: microseconds(row.floor)),
    (">warpfuse us", spread),
    (">share", Ratio(lambda row: row.share("warpfuse"), percent)),
]
# The time of a copy of the same bytes, over ours.
COPY: Column = (">of a copy", Ratio(lambda row: ratio(row.copy, row.time("warpfuse")), percent))


def target_column(bench: Bench, peers: Peers) -> Column:
    """The targets that cover a row, each with whether it is met."""
    return "target", lambda row: ", ".join(v.mark for v in peers.verdicts(row, bench)) or NOTHING


def other_run(peers: Peers, graph: str) -> Column:
    """The best peer of another run; `graph` marks a time that was taken in one."""

    def cell(row: Row) -> str:
        found = peers.other_run(row)
        return f"{microseconds(found[1])} {found[0]}" + graph * (found[2] == "graph") if found else NOTHING

    return "best peer us" + ", other run" * bool(graph), cell


def same_run(peers: Peers) -> Column:
    """The best peer that was timed beside ours."""

    def cell(row: Row) -> str:
        found = peers.compared(row)
        return f"{found.text} ({times(found.ratio)})" if found else NOTHING

    return "best peer us, same run", cell
