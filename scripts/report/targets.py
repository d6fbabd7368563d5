"""Other people's kernels and the targets, from docs/benchmarks/peers.json and a run of peers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .run import DIRECTIONS, Bench, Generated, Generation, Key, Row, Run, Variant, Work
from .run import positive, ratio, read_json, reading
from .sectors import least_of_sectors
from .text import digits, microseconds, percent, rate, times

FORMAT = "warpfuse-peers-1"
# The softmax or the linear that an operator with dropout adds to, timed alone in the same run.
ALONE = dict.fromkeys(("dropout_softmax", "softmax_dropout", "scaled_masked_softmax_dropout"), "softmax")
ALONE["linear_dropout_softmax"] = "linear"
COMPILED = "hf static+compile"


def shown(name: str) -> str:
    """The name of a variant for people; ATen's are one kernel's or a chain's."""
    return "ATen" if name in ("aten", "chain") else name


def is_peer(row: Row, variant: Variant) -> bool:
    """Whether it is somebody else's way to the same result: no kernel of the plugin, no part of the work."""
    return not (variant.name == "warpfuse" or variant.of_plugin or variant.name == ALONE.get(row.key.operator))


class Compared(NamedTuple):
    """The fastest peer on a row, and how many times ours is faster, timed in the same way."""

    name: str
    us: float
    ratio: float

    @property
    def text(self) -> str:
        return f"{microseconds(self.us)} {self.name}"


def fastest(row: Row, of: str = "p50") -> Compared | None:
    """The fastest peer of a row of a run that holds both; by the graph's times, or "event_p50"."""
    times_of = {name: us for name in row.variants if (us := row.figure(name, of))}
    ours = times_of.pop("warpfuse", None)
    if not times_of or not ours:
        return None
    name = min(times_of, key=times_of.__getitem__)
    return Compared(shown(name), times_of[name], times_of[name] / ours)


@dataclass(frozen=True)
class Target:
    """A limit on a measure, for the rows or works whose fields are those of `where`, or among its lists."""

    where: dict[str, Any]
    directions: tuple[str, ...]
    measure: "Measure"
    limit: float
    upper: bool

    @classmethod
    def of(cls, raw: dict[str, Any]) -> "Target":
        """An entry of the file."""
        if raw["measure"] not in MEASURES:
            raise ValueError(f"measure: expected {' or '.join(MEASURES)}, got {raw['measure']}")
        fields = Key.of(raw)._asdict() if "shape" in raw else raw
        where = {name: fields[name] for name in (*Key._fields, *Work._fields) if name in fields}
        upper = "at_most" in raw
        limit = positive(raw, "at_most" if upper else "at_least")
        if limit is None:
            raise KeyError("at_least")
        return cls(where, tuple(raw.get("directions", ())), MEASURES[raw["measure"]], limit, upper)

    @property
    def text(self) -> str:
        return self.measure.words.format(self.limit).replace("%", " %")

    def covers(self, key: Key | Work, direction: str = "") -> bool:
        fits = all(getattr(key, name) in (value if isinstance(value, list) else [value]) for name, value in self.where.items())
        return fits and (not self.directions or direction in self.directions)

    def met(self, value: float) -> bool:
        return value <= self.limit if self.upper else value >= self.limit

    def verdict(self, row: Row, bench: Bench, peers: "Peers") -> "Verdict":
        """On a row that it covers; one without a right result of ours misses it."""
        value = self.measure.of(row, bench, peers)
        failed = "warpfuse" in row.variants and row.time() is None
        return Verdict(self, value, self.met(value) if value is not None else False if failed else None)


class Verdict(NamedTuple):
    """A target beside what was measured; met is None where nothing was measured."""

    target: Target
    value: float | None
    met: bool | None

    @property
    def mark(self) -> str:
        sign = {True: "✓", False: "✗", None: "not measured:"}[self.met]
        return f"{sign} {self.target.text}"

    @property
    def measured(self) -> str:
        return "no result" if self.value is None else self.target.measure.show(self.value)


class Peers:
    """What applies to the device of a run: other GPUs than the file's have neither peers nor targets, but rules."""

    def __init__(self, path: Path, run: Run, beside: Bench | None = None) -> None:
        raw = read_json(path, FORMAT)
        self.same = not run.on_gpu or run.device_name == raw.get("device")
        with reading(path):
            self.measured: str = raw["measured"]
            self.versions: dict[str, str] = raw["versions"]
            self.processor: dict[str, Any] = raw["processor"]

        def targets(name: str) -> list[Target]:
            found = []
            for i, entry in enumerate(raw.get(name, []) if self.same else []):
                with reading(f"{path}: {name}[{i}]"):
                    if entry["device"] == run.device["type"]:
                        found.append(Target.of(entry))
            return found

        self.targets, self.generate = targets("targets"), targets("generate")
        self.rules = {f"{path}: rules[{i}]": entry for i, entry in enumerate(raw.get("rules", []))}
        self.best: dict[tuple[Key, str], tuple[str, float, str]] = {}  # peer, us, "graph" or "event"
        for i, entry in enumerate(raw["peers"] if self.same and run.on_gpu else []):
            with reading(f"{path}: peers[{i}]"):
                for direction in DIRECTIONS:
                    if best := entry.get(direction):
                        self.best[Key.of(entry), direction] = (best["peer"], float(best["us"]), entry["timing"])
        self.beside = beside if beside and beside.device_name == run.device_name else None
        self.rows = {(row.key, row.direction): row for row in (self.beside.rows if self.beside else [])}

    def compared(self, row: Row) -> Compared | None:
        """Ours beside the fastest peer of the same run."""
        found = self.rows.get((row.key, row.direction))
        return fastest(found) if found else None

    def other_run(self, row: Row) -> tuple[str, float, str] | None:
        """The best of another run, unless that was run again beside ours, which is an answer."""
        best, again = self.best.get((row.key, row.direction)), self.rows.get((row.key, row.direction))
        return None if best and again and best[0] in map(shown, again.variants) else best

    def speed_up(self, row: Row) -> float | None:
        """Over the fastest peer of either run, our time taken as the peer's was."""
        ratios = [found for name, each in row.variants.items() if is_peer(row, each) and (found := row.speed_up(name))]
        if beside := self.compared(row):
            ratios.append(beside.ratio)
        if best := self.other_run(row):
            by_event = row.figure("warpfuse", "event_p50") if best[2] == "event" else None
            if ours := by_event or row.time():
                ratios.append(best[1] / ours)
        return min(ratios, default=None)

    def verdicts(self, row: Row, bench: Bench) -> list[Verdict]:
        """The targets that cover a row."""
        return [target.verdict(row, bench, self) for target in self.targets if target.covers(row.key, row.direction)]


# --- measures ---------------------------------------------------------------------------------


def alone(row: Row) -> float | None:
    """The time of the softmax or linear alone."""
    return row.time(ALONE.get(row.key.operator, ""))


def on_top(row: Row) -> float | None:
    """Our time beyond that; below 0 where ours is faster."""
    without, ours = alone(row), row.time()
    return ours - without if without and ours else None


def over(ours: Generated | None, other: Generated | None) -> float | None:
    """The quotient of what two rows measured."""
    return ratio(ours and ours.p50, other and other.p50)


def over_baseline(run: Generation, work: Work, graph: bool) -> float | None:
    """Our rate over that of the baseline."""
    return over(run.find(work, "fused", graph), run.find(work, "baseline", graph))


def prefill_over_baseline(run: Generation, work: Work, _graph: bool = True) -> float | None:
    """The baseline's time of a prompt over ours."""
    return over(run.prefill(work, "baseline"), run.prefill(work, "fused"))


def figure(variant: str, value: Callable[[Generated], float | None]) -> Callable[[Generation, Work, bool], float | None]:
    """A figure of a variant's row."""
    return lambda run, work, graph: value(row) if (row := run.find(work, variant, graph)) else None


class Measure(NamedTuple):
    """Of a row (row, bench, peers) or of a work (run, work, graph): value, target in words, value as text."""

    of: Callable[..., float | None]
    words: str
    show: Callable[[float | None], str]


MEASURES = {
    "share": Measure(lambda row, *_: row.share(), "{:.0%}", percent),
    "sector_share": Measure(
        lambda row, *_: ratio(ratio(least_of_sectors(row), row.least_bytes), ratio(row.time(), row.floor)),
        "{:.0%} by sectors",
        percent,
    ),
    "copy_ratio": Measure(lambda row, *_: row.of_copy(), "{:.0%} of the copy", percent),
    "us": Measure(lambda row, *_: row.time(), "at most {:g} us", digits),
    "extra_bytes": Measure(
        lambda row, *_: row.figure("warpfuse", "extra_bytes") if row.time() else None,
        "at most {:,.0f} bytes beside",
        digits,
    ),
    "empty_kernels": Measure(
        lambda row, bench, _: ratio(row.time(), bench.empty_kernel), "at most {:g} empty kernels", digits
    ),
    "peer_speed_up": Measure(lambda row, _, peers: peers.speed_up(row), "best peer", times),
    "near_best_peer": Measure(lambda row, _, peers: peers.speed_up(row), "{:g}x the best peer", times),
    "chain_speed_up": Measure(lambda row, *_: row.speed_up("chain"), "{:g}x the chain", times),
    "aten_speed_up": Measure(lambda row, *_: row.speed_up("aten"), "{:g}x ATen", times),
    "over_alone": Measure(lambda row, *_: ratio(row.time(), alone(row)), "at most {:g}x softmax alone", digits),
    "us_on_top": Measure(lambda row, *_: on_top(row), "at most {:g} us on top of the linear alone", digits),
    "tokens_per_s": Measure(figure("fused", lambda row: row.p50), "{:,.0f} tokens/s", rate),
    "over_baseline": Measure(over_baseline, "{:g}x the baseline", times),
    "over_compiled": Measure(
        lambda run, work, graph: over(run.find(work, "fused", graph), run.theirs(work).get(COMPILED)),
        f"{{:g}}x {COMPILED}",
        times,
    ),
    "prefill_over_baseline": Measure(prefill_over_baseline, "prefill {:g}x the baseline", times),
    "floor_share": Measure(
        figure("steps", lambda row: row.floor_share), "{:.0%} of the floor by steps", percent
    ),
    "host_us": Measure(
        figure("fused", lambda row: ratio(row.raw.get("host_us_per_token"), row.work.batch)),
        "at most {:g} us of the host per token",
        microseconds,
    ),
}
