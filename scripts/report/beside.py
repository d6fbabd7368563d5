"""Other people's kernels timed beside ours, in one run and in one way: scripts/bench_peers.py."""

from dataclasses import dataclass
from functools import cached_property

from .model import Bench, Key, Row
from .numbers import microseconds

# Names in the file, and for people; other peers have one name.
DISPLAYED = {"aten": "ATen", "chain": "ATen"}


@dataclass(frozen=True)
class Compared:
    """The fastest peer on a row, and ours."""

    name: str
    us: float
    ours: float

    @property
    def ratio(self) -> float:
        """How many times ours is faster."""
        return self.us / self.ours

    @property
    def text(self) -> str:
        return f"{microseconds(self.us)} {self.name}"


@dataclass(frozen=True)
class Beside:
    """A run that holds ours and the peers on the same rows."""

    bench: Bench

    @cached_property
    def rows(self) -> dict[tuple[Key, str], Row]:
        return {(row.key, row.direction): row for row in self.bench.rows}

    @cached_property
    def names(self) -> list[str]:
        """All peers of the run, in its order."""
        names = dict.fromkeys(name for row in self.bench.rows for name in row.variants)
        return [name for name in names if name != "warpfuse"]

    def on(self, bench: Bench) -> bool:
        """Whether it is a run of the same kind of device."""
        return self.bench.device_name == bench.device_name

    def holds(self, row: Row, name: str) -> bool:
        """Whether a peer was run here on that row; that it was wrong or unsupported is an answer."""
        found = self.rows.get((row.key, row.direction))
        return found is not None and name in {DISPLAYED.get(v, v) for v in found.variants}

    def compared(self, row: Row) -> Compared | None:
        """By the graph's times; None where ours or all peers have none."""
        found = self.rows.get((row.key, row.direction))
        return fastest(found, "p50") if found else None


def fastest(row: Row, time: str) -> Compared | None:
    """The fastest peer of a row of the run by "p50" or "event_p50"."""
    ours = row.variants.get("warpfuse")
    known = {
        name: us
        for name, variant in row.variants.items()
        if name != "warpfuse" and (us := getattr(variant, time))
    }
    mine = getattr(ours, time) if ours else None
    if not known or not mine:
        return None
    name = min(known, key=lambda name: known[name])
    return Compared(DISPLAYED.get(name, name), known[name], mine)
