"""Other people's kernels and the targets, from docs/benchmarks/peers.json and a run of peers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .run import DIRECTIONS, Bench, Generation, Key, Row, Work, positive, read_json, reading
from .text import digits, microseconds, percent, rate, times

FORMAT = "warpfuse-peers-1"
ATEN = {"aten": "ATen", "chain": "ATen"}  # names in a file, and for people
# The softmax or the linear that an operator with dropout adds to, timed alone in the same run.
ALONE = dict.fromkeys(("dropout_softmax", "softmax_dropout", "scaled_masked_softmax_dropout"), "softmax")
ALONE["linear_dropout_softmax"] = "linear"
COMPILED = "hf static+compile"


class Compared(NamedTuple):
    """The fastest peer on a row, and our time taken in the same way."""

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


def fastest(row: Row, of: str = "p50") -> Compared | None:
    """The fastest peer of a row of a run that holds both; by the graph's times, or "event_p50"."""
    ours = row.time("warpfuse", of)
    known = {name: us for name in row.variants if name != "warpfuse" and (us := row.time(name, of))}
    if not known or not ours:
        return None
    name = min(known, key=lambda name: known[name])
    return Compared(ATEN.get(name, name), known[name], ours)


@dataclass(frozen=True)
class Target:
    """A limit on a measure, for the rows or works whose fields are those of `where`."""

    where: dict[str, Any]
    directions: tuple[str, ...]
    measure: str
    limit: float
    upper: bool

    @classmethod
    def of(cls, raw: dict[str, Any]) -> "Target":
        """An entry of the file."""
        if raw["measure"] not in MEASURES:
            raise ValueError(f"measure: expected {' or '.join(MEASURES)}, got {raw['measure']}")
        upper = "at_most" in raw
        fields = Key.of(raw)._asdict() if "shape" in raw else raw
        where = {name: fields[name] for name in (*Key._fields, *Work._fields) if name in fields}
        limit = positive(raw, "at_most" if upper else "at_least")
        if limit is None:
            raise KeyError("at_least")
        return cls(where, tuple(raw.get("directions", ())), raw["measure"], limit, upper)

    @property
    def text(self) -> str:
        return MEASURES[self.measure].words.format(self.limit).replace("%", " %")

    def covers(self, key: Key | Work, direction: str = "") -> bool:
        fits = all(getattr(key, name) == value for name, value in self.where.items())
        return fits and (not self.directions or direction in self.directions)

    def met(self, value: float) -> bool:
        return value <= self.limit if self.upper else value >= self.limit

    def show(self, value: float | None) -> str:
        return "no result" if value is None else MEASURES[self.measure].show(value)


class Verdict(NamedTuple):
    """A target beside what was measured; met is None where nothing was measured."""

    target: Target
    value: float | None
    met: bool | None

    @property
    def mark(self) -> str:
        sign = {True: "✓", False: "✗", None: "not measured:"}[self.met]
        return f"{sign} {self.target.text}"


class Peers:
    """What applies to the device of a run: other GPUs than the file's have neither peers nor targets."""

    def __init__(self, path: Path, device: dict[str, Any], beside: Bench | None = None) -> None:
        raw = read_json(path, FORMAT)
        kind = device.get("type", "")
        self.same = kind == "cpu" or device.get("name") == raw.get("device")
        with reading(str(path)):
            self.measured: str = raw["measured"]
            self.versions: dict[str, str] = raw["versions"]
            self.processor: dict[str, Any] = raw["processor"]

        def of_device(name: str) -> list[Target]:
            found = []
            for i, entry in enumerate(raw.get(name, [])):
                with reading(f"{path}: {name}[{i}]"):
                    if self.same and entry["device"] == kind:
                        found.append(Target.of(entry))
            return found

        self.targets, self.generate = of_device("targets"), of_device("generate")
        self.best: dict[tuple[Key, str], tuple[str, float, str]] = {}  # peer, us, "graph" or "event"
        for i, entry in enumerate(raw["peers"] if self.same and kind == "cuda" else []):
            with reading(f"{path}: peers[{i}]"):
                for direction in DIRECTIONS:
                    if best := entry.get(direction):
                        found = (best["peer"], float(best["us"]), entry["timing"])
                        self.best[Key.of(entry), direction] = found
        self.beside = beside if beside and beside.device_name == device.get("name") else None
        self.rows = {(row.key, row.direction): row for row in (self.beside.rows if self.beside else [])}

    def compared(self, row: Row) -> Compared | None:
        """Ours beside the fastest peer of the same run."""
        found = self.rows.get((row.key, row.direction))
        return fastest(found) if found else None

    def other_run(self, row: Row) -> tuple[str, float, str] | None:
        """The best of another run, unless that was run again beside ours, which is an answer."""
        best, again = self.best.get((row.key, row.direction)), self.rows.get((row.key, row.direction))
        ran = {ATEN.get(name, name) for name in again.variants} if again else set()
        return None if best and best[0] in ran else best

    def speed_up(self, row: Row) -> float | None:
        """Over the fastest peer of either run, our time taken as the peer's was."""
        ratios = []
        if beside := self.compared(row):
            ratios.append(beside.ratio)
        if best := self.other_run(row):
            by_event = row.time("warpfuse", "event_p50") if best[2] == "event" else None
            if ours := by_event or row.time("warpfuse"):
                ratios.append(best[1] / ours)
        return min(ratios, default=None)

    def verdicts(self, row: Row, bench: Bench) -> list[Verdict]:
        """The targets that cover a row; a row without a right result of ours misses all of them."""
        found = []
        for target in self.targets:
            if target.covers(row.key, row.direction):
                value = MEASURES[target.measure].of(row, bench, self)
                failed = "warpfuse" in row.variants and row.time("warpfuse") is None
                met = target.met(value) if value is not None else False if failed else None
                found.append(Verdict(target, value, met))
        return found


# --- measures ---------------------------------------------------------------------------------


def ratio(above: float | None, below: float | None) -> float | None:
    """Their quotient where both are known."""
    return above / below if above and below else None


def over(name: str) -> Callable[[Row, Bench, Peers], float | None]:
    """How many times ours is faster than another variant."""
    return lambda row, _bench, _peers: ratio(row.time(name), row.time("warpfuse"))


def alone(row: Row) -> float | None:
    """The time of the softmax or linear alone."""
    return row.time(ALONE[row.key.operator]) if row.key.operator in ALONE else None


def on_top(row: Row) -> float | None:
    """Our time beyond that; below 0 where ours is faster."""
    without, ours = alone(row), row.time("warpfuse")
    return ours - without if without and ours else None


def extra_bytes(row: Row) -> float | None:
    """Memory of ours beside inputs and result."""
    return row.variants["warpfuse"].extra_bytes if row.time("warpfuse") else None


def over_baseline(run: Generation, work: Work, graph: bool) -> float | None:
    """Our rate over that of the baseline."""
    fused, baseline = (run.find(work, name, graph) for name in ("fused", "baseline"))
    return ratio(fused and fused.p50, baseline and baseline.p50)


def prefill_over_baseline(run: Generation, work: Work, _graph: bool = True) -> float | None:
    """The baseline's time of a prompt over ours."""
    fused, baseline = (run.prefill(work, name) for name in ("fused", "baseline"))
    return ratio(baseline and baseline.p50, fused and fused.p50)


def _fused(value: Callable[[Any], float | None]) -> Callable[[Generation, Work, bool], float | None]:
    return lambda run, work, graph: value(row) if (row := run.find(work, "fused", graph)) else None


def _over_compiled(run: Generation, work: Work, graph: bool) -> float | None:
    fused, theirs = run.find(work, "fused", graph), run.theirs(work).get(COMPILED)
    return ratio(fused and fused.p50, theirs and theirs.p50)


def _host_us(row: Any) -> float | None:
    host = row.raw.get("host_us_per_token")
    return None if host is None else host / row.work.batch


class Measure(NamedTuple):
    """Of a row (row, bench, peers) or of a work (run, work, graph): value, target in words, value as text."""

    of: Callable[..., float | None]
    words: str
    show: Callable[[float | None], str]


MEASURES = {
    "share": Measure(lambda row, _bench, _peers: row.share("warpfuse"), "{:.0%}", percent),
    "copy_ratio": Measure(
        lambda row, _bench, _peers: ratio(row.copy, row.time("warpfuse")), "{:.0%} of the copy", percent
    ),
    "us": Measure(lambda row, _bench, _peers: row.time("warpfuse"), "at most {:g} us", digits),
    "extra_bytes": Measure(
        lambda row, _bench, _peers: extra_bytes(row), "at most {:,.0f} bytes beside", digits
    ),
    "empty_kernels": Measure(
        lambda row, bench, _peers: ratio(row.time("warpfuse"), bench.empty_kernel),
        "at most {:g} empty kernels",
        digits,
    ),
    "peer_speed_up": Measure(lambda row, _bench, peers: peers.speed_up(row), "best peer", times),
    "chain_speed_up": Measure(over("chain"), "{:g}x the chain", times),
    "aten_speed_up": Measure(over("aten"), "{:g}x ATen", times),
    "over_alone": Measure(
        lambda row, _bench, _peers: ratio(row.time("warpfuse"), alone(row)),
        "at most {:g}x softmax alone",
        digits,
    ),
    "us_on_top": Measure(
        lambda row, _bench, _peers: on_top(row), "at most {:g} us on top of the linear alone", digits
    ),
    "tokens_per_s": Measure(_fused(lambda row: row.p50), "{:,.0f} tokens/s", rate),
    "over_baseline": Measure(over_baseline, "{:g}x the baseline", times),
    "over_compiled": Measure(_over_compiled, f"{{:g}}x {COMPILED}", times),
    "prefill_over_baseline": Measure(prefill_over_baseline, "prefill {:g}x the baseline", times),
    "floor_share": Measure(_fused(lambda row: row.floor_share), "{:.0%} of the floor", percent),
    "host_us": Measure(_fused(_host_us), "at most {:g} us of the host per token", microseconds),
}
