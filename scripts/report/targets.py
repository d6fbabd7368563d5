"""Other people's kernels and the figures to reach, from docs/benchmarks/peers.json."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .alone import alone_time, us_on_top
from .beside import Beside, Compared
from .errors import ReportError
from .fields import Fields, read_json
from .model import DIRECTIONS, Bench, Key, Row, read_key
from .numbers import times

FORMAT = "warpfuse-peers-1"
Found = tuple[Key, str]  # a measurement and its direction


@dataclass(frozen=True)
class Peer:
    """The fastest public kernel known, and how its time was taken: "graph" or "event"."""

    name: str
    us: float
    timing: str


@dataclass(frozen=True)
class Processor:
    """What a multiprocessor can compute a clock, for the roofline."""

    fp32_per_clock: int
    special_per_clock: int
    clock_mhz: int


@dataclass(frozen=True)
class Peers:
    """The peers' file, and the run in which peers were timed beside ours if there is one."""

    device: str
    measured: str
    versions: dict[str, str]
    processor: Processor
    best: dict[Found, Peer]
    targets: list["Target"]
    beside: Beside | None = None

    def peer(self, row: Row) -> Peer | None:
        """The best of other runs; those that were run again beside ours are judged by that."""
        found = self.best.get((row.key, row.direction))
        again = found and self.beside and self.beside.holds(row, found.name)
        return None if again else found

    def compared(self, row: Row) -> Compared | None:
        """Ours beside the fastest peer of the same run."""
        return self.beside.compared(row) if self.beside else None

    def compare_time(self, row: Row) -> float | None:
        """Our time, taken as the peer's was where both ways were measured."""
        peer, ours = self.peer(row), row.variants.get("warpfuse")
        if peer and ours and peer.timing == "event" and ours.event_p50:
            return ours.event_p50
        return row.time("warpfuse")


@dataclass(frozen=True)
class Verdict:
    """A figure beside what was measured; reached is None where nothing was measured."""

    target: "Target"
    value: float | None
    reached: bool | None

    @property
    def mark(self) -> str:
        """✓, ✗ or neither, and the figure."""
        sign = {True: "✓", False: "✗", None: "not measured:"}[self.reached]
        return f"{sign} {self.target.text}"


def _speed_up(other: str) -> Callable[[Row, Bench, Peers], float | None]:
    def measure(row: Row, _bench: Bench, _peers: Peers) -> float | None:
        theirs, ours = row.time(other), row.time("warpfuse")
        return theirs / ours if theirs and ours else None

    return measure


def _share(row: Row, _bench: Bench, _peers: Peers) -> float | None:
    return row.share("warpfuse")


def _copy_ratio(row: Row, _bench: Bench, _peers: Peers) -> float | None:
    ours = row.time("warpfuse")
    return row.copy / ours if row.copy and ours else None


def _time(row: Row, _bench: Bench, _peers: Peers) -> float | None:
    return row.time("warpfuse")


def _extra_bytes(row: Row, _bench: Bench, _peers: Peers) -> float | None:
    ours = row.variants.get("warpfuse")
    return ours.extra_bytes if ours and ours.p50 else None


def _empty_kernels(row: Row, bench: Bench, _peers: Peers) -> float | None:
    ours = row.time("warpfuse")
    return ours / bench.empty_kernel if bench.empty_kernel and ours else None


def _peer_speed_up(row: Row, _bench: Bench, peers: Peers) -> float | None:
    ratios = []
    if beside := peers.compared(row):
        ratios.append(beside.ratio)
    peer, ours = peers.peer(row), peers.compare_time(row)
    if peer and ours:
        ratios.append(peer.us / ours)
    return min(ratios, default=None)


def _over_alone(row: Row, _bench: Bench, _peers: Peers) -> float | None:
    alone, ours = alone_time(row), row.time("warpfuse")
    return ours / alone if alone and ours else None


def _us_on_top(row: Row, _bench: Bench, _peers: Peers) -> float | None:
    return us_on_top(row)


# What is measured, and the figure in words.
MEASURES = {
    "share": (_share, "{:.0%}"),
    "copy_ratio": (_copy_ratio, "{:.0%} of the copy"),
    "us": (_time, "at most {:g} us"),
    "extra_bytes": (_extra_bytes, "at most {:,.0f} bytes beside"),
    "empty_kernels": (_empty_kernels, "at most {:g} empty kernels"),
    "peer_speed_up": (_peer_speed_up, "best peer"),
    "chain_speed_up": (_speed_up("chain"), "{:g}x the chain"),
    "aten_speed_up": (_speed_up("aten"), "{:g}x ATen"),
    "over_alone": (_over_alone, "at most {:g}x softmax alone"),
    "us_on_top": (_us_on_top, "at most {:g} us on top of the linear alone"),
}


@dataclass(frozen=True)
class Target:
    """A figure to reach; without a key it is for every row of the operator."""

    device: str
    operator: str
    key: Key | None
    directions: tuple[str, ...]
    measure: str
    limit: float
    upper: bool

    @property
    def text(self) -> str:
        return MEASURES[self.measure][1].format(self.limit).replace("%", " %")

    def value_text(self, verdict: "Verdict") -> str:
        """What was measured, in the figure's unit; cut towards the worse side."""
        if verdict.value is None:
            return "no result"
        if self.measure in ("share", "copy_ratio"):
            return f"{int(verdict.value * 1000) / 10:.1f} %"
        return f"{verdict.value:.3g}" if self.upper else times(verdict.value)

    def covers(self, row: Row) -> bool:
        mine = row.key == self.key if self.key else row.key.operator == self.operator
        return mine and row.direction in self.directions

    def judge(self, row: Row, bench: Bench, peers: Peers) -> Verdict:
        """A row without a right result of ours misses every figure."""
        value = MEASURES[self.measure][0](row, bench, peers)
        if value is None:
            measured = "warpfuse" in row.variants and row.time("warpfuse") is None
            return Verdict(self, None, False if measured else None)
        return Verdict(self, value, value <= self.limit if self.upper else value >= self.limit)


def _peer(fields: Fields) -> dict[Found, Peer]:
    key, timing = read_key(fields), fields.get("timing", str)
    found = {}
    for direction in DIRECTIONS:
        if direction in fields.raw:
            best = fields.object(direction)
            found[key, direction] = Peer(best.get("peer", str), best.positive("us"), timing)
    return found


def _target(fields: Fields) -> Target:
    measure = fields.get("measure", str)
    if measure not in MEASURES:
        raise ReportError(
            f"{fields.where}: measure: expected {' or '.join(MEASURES)}, got {measure}"
        )
    upper = "at_most" in fields.raw
    return Target(
        device=fields.get("device", str),
        operator=fields.get("operator", str),
        key=read_key(fields) if "shape" in fields.raw else None,
        directions=tuple(fields.get("directions", list)),
        measure=measure,
        limit=fields.positive("at_most" if upper else "at_least"),
        upper=upper,
    )


def load_peers(path: Path, run: Bench | None = None) -> Peers:
    """The peers' file, and a run of peers beside ours."""
    fields = read_json(path, FORMAT)
    processor = fields.object("processor")
    best: dict[Found, Peer] = {}
    for entry in fields.objects("peers"):
        best |= _peer(entry)
    return Peers(
        device=fields.get("device", str),
        measured=fields.get("measured", str),
        versions=fields.texts("versions"),
        processor=Processor(
            *(
                processor.get(name, int)
                for name in ("fp32_per_clock", "special_per_clock", "clock_mhz")
            )
        ),
        best=best,
        targets=[_target(entry) for entry in fields.objects("targets")],
        beside=Beside(run) if run else None,
    )


def for_device(peers: Peers, bench: Bench) -> Peers:
    """What applies to the benchmark's device: other GPUs have neither these peers nor figures."""
    kind = bench.device.get("type", "")
    same = kind == "cpu" or bench.device_name == peers.device
    return Peers(
        device=peers.device,
        measured=peers.measured,
        versions=peers.versions,
        processor=peers.processor,
        best=peers.best if same and kind == "cuda" else {},
        targets=[target for target in peers.targets if same and target.device == kind],
        beside=peers.beside if peers.beside and peers.beside.on(bench) else None,
    )
