"""The columns of the tables of operators, a cell for each row of a run, and the table that they make."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import geometric_mean

from .run import DIRECTIONS, Bench, Key, Row
from .targets import Peers
from .text import NOTHING, error, known_table, megabytes, microseconds, percent, times

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
        values = [value for row in rows if (value := self.of(row))]
        return self.show(geometric_mean(values) if values else None)


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
    return lambda row: microseconds(row.time(name)) if row.time(name) else row.figure(name, "status") or NOTHING


def error_of(name: str) -> Cell:
    """The largest error of a variant, as the check before the timing measures it."""
    return lambda row: error(row.figure(name, "max_error"))


def memory_of(name: str) -> Cell:
    """What a variant allocates beside its inputs and its result."""
    return lambda row: megabytes(row.figure(name, "extra_bytes"))


def beside(title: str, name: str) -> list[Column]:
    """A variant's time, and ours against it."""
    return [(f">{title} us", time_of(name)), (">speed-up", Ratio(lambda row: row.speed_up(name), times))]


def errors(title: str, name: str) -> list[Column]:
    """Our largest error, and a variant's."""
    return [(">largest error", error_of("warpfuse")), (f">{title}'s", error_of(name))]


def spread(row: Row) -> str:
    """Our median and, in brackets, the 5th and 95th percentile; else why there is none."""
    ours = row.variants.get("warpfuse")
    if ours is None or ours.p50 is None:
        return f"**{ours.status}**" if ours else NOTHING
    return f"{microseconds(ours.p50)} ({microseconds(ours.p5)}–{microseconds(ours.p95)})"


TIME: Column = (">warpfuse us", spread)
OURS: list[Column] = [(">floor us", lambda row: microseconds(row.floor)), TIME, (">share", Ratio(Row.share, percent))]
OURS_AND_COPY: list[Column] = [*OURS, (">of a copy", Ratio(Row.of_copy, percent))]
EVENT: Cell = lambda row: microseconds(row.figure("warpfuse", "event_p50"))


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
