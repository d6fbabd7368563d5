"""Runs of `warpfuse bench`, `bench generate` and of their peers: the JSON, as objects and as merged files."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

BENCH, GENERATE, GENERATE_PEERS = (
    "warpfuse-bench-1",
    "warpfuse-generate-1",
    "warpfuse-generate-peers-1",
)
DIRECTIONS = ("forward", "backward", "both")  # both: in one call
LISTS = ("rows", "prefill", "accuracy")
RENAMED = {"refused": "unsupported", "seed": "basic"}  # in files of before 2026-11-23


class ReportError(Exception):
    """Input that cannot be reported on: one line that names the file and the place in it."""


@contextmanager
def reading(place: str) -> Iterator[None]:
    """Turns what goes wrong with a field into a ReportError that names the place."""
    try:
        yield
    except KeyError as error:
        raise ReportError(f"{place}: {error.args[0]} is missing") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise ReportError(f"{place}: {error}") from error


def read_json(path: Path, expected: str, allow_partial: bool = False) -> dict[str, Any]:
    """A file whose field "format" must be as expected, and of a run that ended."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ReportError(f"{path}: no JSON: {error}") from error
    found = raw.get("format") if isinstance(raw, dict) else None
    if found != expected:
        raise ReportError(f"{path}: format: expected {expected}, got {found}")
    # Files of peers, and the first ones of generation, have no such field.
    if not raw.get("complete", True) and not allow_partial:
        raise ReportError(f"{path}: the run was not completed (--allow-partial takes it anyway)")
    return raw


def wrapped(path: Path, raw: dict[str, Any], name: str, kind: type) -> list[Any]:
    """The objects of a list, each as a `kind`; its `name` tells it from the others."""
    found = []
    for i, entry in enumerate(raw.get(name, [])):
        with reading(f"{path}: {name}[{i}]"):
            found.append(kind(entry))
    names = [entry.name for entry in found]
    for again in (entry for entry in names if names.count(entry) > 1):
        raise ReportError(f"{path}: {again} is there twice")
    if not found and name == "rows":
        raise ReportError(f"{path}: no rows")
    return found


def positive(raw: dict[str, Any], name: str, default: float | None = None) -> float | None:
    """A number above 0; the default where there is none."""
    value = raw.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not 0 < value < float("inf"):
        raise ValueError(f"{name}: expected a number above 0, got {value!r}")
    return float(value)


# --- operators --------------------------------------------------------------------------------


class Key(NamedTuple):
    """What a measurement is of, but for its direction."""

    operator: str
    shape: tuple[int, ...]
    dim: int
    dtype: str
    mask: str
    levels: tuple[tuple[int, int], ...] = ()  # height and width, where the shape has them

    @classmethod
    def of(cls, raw: dict[str, Any]) -> "Key":
        """The fields that name a row of a benchmark, and of the peers' file alike."""
        shape = tuple(raw["shape"])
        if not shape or any(type(size) is not int or size < 1 for size in shape):
            raise ValueError(f"shape: expected sizes above 0, got {raw['shape']!r:.40}")
        dim = raw.get("dim", -1)
        if not -len(shape) <= dim < len(shape):
            raise ValueError(f"dim: {dim} is no dimension of {list(shape)}")
        levels = tuple((height, width) for height, width in raw.get("levels", ()))
        return cls(raw["operator"], shape, dim % len(shape), raw["dtype"], raw.get("mask", "none"), levels)

    @property
    def label(self) -> str:
        """The shape for people, with whatever is not plain softmax of the last dimension."""
        text = " x ".join(str(size) for size in self.shape)
        if len(self.shape) != 2:
            text = f"[{', '.join(str(size) for size in self.shape)}]"
        if self.levels:
            text += f", {', '.join(f'{height} x {width}' for height, width in self.levels)}"
        return text if self.dim == len(self.shape) - 1 else f"{text} over dim {self.dim}"

    @property
    def title(self) -> str:
        """The shape, its mask, and the operator where neither tells."""
        name = self.label
        if self.operator == "scaled_masked_softmax":
            return f"{name} {self.mask if self.mask != 'none' else 'no mask'}"
        return name if self.operator == "softmax" else f"{self.operator} {name}"


class Variant:
    """One implementation on one row; times in microseconds, None unless its status is ok."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.name: str = raw["name"]
        self.status: str = RENAMED.get(raw["status"], raw["status"])
        if self.status not in ("ok", "unsupported", "wrong"):
            raise ValueError(f"status: expected ok, unsupported or wrong, got {self.status}")
        times = raw if self.status == "ok" else {}
        self.p50 = positive(times, "p50_us")
        if times and self.p50 is None:
            raise KeyError("p50_us")
        self.p5, self.p95 = positive(times, "p5_us", self.p50), positive(times, "p95_us", self.p50)
        self.event_p50 = positive(times, "event_p50_us")
        self.default_malloc_p50 = positive(times, "default_malloc_p50_us")
        self.extra_bytes: int | None = raw.get("extra_bytes")  # allocated beside inputs and result
        self.max_error: float | None = raw.get("max_error")  # of an element, over the size of its terms
        self.of_plugin = "launches" in raw  # whether its kernels are the plugin's
        self.tiers = [launch["tier"] for launch in raw.get("launches", [])]


class Row:
    """All implementations on one shape, dtype, mask and direction."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw
        self.key = Key.of(raw)
        self.direction: str = raw["direction"]
        if self.direction not in DIRECTIONS:
            raise ValueError(f"direction: expected {' or '.join(DIRECTIONS)}, got {self.direction}")
        self.presets = [RENAMED.get(name, name) for name in raw.get("presets", ["table"])]
        self.variants = {entry["name"]: Variant(entry) for entry in raw["variants"]}
        self.floor, self.least_bytes = raw["floor_us"], raw["least_bytes"]
        self.copy = positive(raw.get("same_size_copy", {}), "p50_us")

    @property
    def name(self) -> str:
        return f"{self.key.title} {self.key.dtype} {self.direction}"

    def time(self, variant: str, of: str = "p50") -> float | None:
        """The median time of a variant that gave right results, else None."""
        found = self.variants.get(variant)
        return getattr(found, of) if found else None

    def share(self, variant: str) -> float | None:
        """The floor's part of a variant's time."""
        time = self.time(variant)
        return self.floor / time if time else None


class Bench:
    """A benchmark of operators."""

    def __init__(self, path: Path, allow_partial: bool = False) -> None:
        self.path, self.raw = path, read_json(path, BENCH, allow_partial)
        with reading(str(path)):
            self.device: dict[str, Any] = self.raw["device"]
            self.copy_gb_per_s: float = self.raw["large_copy"]["gb_per_s"]
            self.copy_bytes: float = self.raw["large_copy"]["bytes"]
            self.empty_kernel = positive(self.raw, "empty_kernel_us")
        self.rows: list[Row] = wrapped(path, self.raw, "rows", Row)

    @property
    def device_name(self) -> str:
        return self.device.get("name", "unknown")

    def preset(self, name: str, *operators: str) -> list[Row]:
        """The rows that a preset measured of these operators."""
        return [row for row in self.rows if name in row.presets and row.key.operator in operators]


# --- generation -------------------------------------------------------------------------------


class Work(NamedTuple):
    """What is generated, whoever does it."""

    model: str
    dtype: str
    batch: int
    prompt: int
    text: str  # of a prompt that is known by it

    @property
    def cells(self) -> list[str]:
        return [self.model, self.dtype, str(self.batch), f"“{self.text}”" if self.text else str(self.prompt)]


class Generated:
    """A row of generation, of ours or of a peer; `rate` is None where nothing was measured."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw
        self.work = Work(*(raw[name] for name in Work._fields[:4]), raw.get("text", ""))
        self.variant: str = raw.get("variant") or raw["peer"]
        self.graph: bool = raw.get("graph", False)
        ok = raw.get("status", "ok") == "ok"
        self.rate: dict[str, float] | None = (raw.get("tokens_per_s") or raw["ms"]) if ok else None
        if self.rate:
            positive(self.rate, "p50") or self.rate["p50"]

    @property
    def name(self) -> str:
        graph = ", graph" if self.graph else ""
        return f"{' '.join(self.work.cells)} {self.variant}{graph}"

    @property
    def p50(self) -> float | None:
        return self.rate["p50"] if self.rate else None

    @property
    def floor_share(self) -> float | None:
        """The floor's part of a step's median time."""
        floor, latency = positive(self.raw, "floor_us"), self.raw.get("latency_us")
        return floor / latency["p50"] if floor and latency else None


@dataclass
class Generation:
    """Runs of ours and of Hugging Face's on the same prompts; the latter may be missing."""

    path: Path
    raw: dict[str, Any]
    rows: list[Generated]
    prefills: list[Generated]
    hf_path: Path | None = None
    hf: dict[str, Any] = field(default_factory=dict)
    peers: list[Generated] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path, allow_partial: bool = False) -> "Generation":
        """A file, and that of Hugging Face's with -peers beside it, if it is there."""
        hf = path.with_name(f"{path.stem}-peers.json")
        raw = read_json(path, GENERATE, allow_partial)
        lists = (wrapped(path, raw, name, Generated) for name in ("rows", "prefill"))
        run = cls(path, raw, *lists)
        if hf.exists():
            run.hf_path, run.hf = hf, read_json(hf, GENERATE_PEERS)
            run.peers = wrapped(hf, run.hf, "rows", Generated)
        return run

    def find(self, work: Work, variant: str, graph: bool) -> Generated | None:
        """The row of a variant, None where it was not measured."""
        found = (row for row in self.rows if (row.work, row.variant, row.graph) == (work, variant, graph))
        return next(found, None)

    def prefill(self, work: Work, variant: str) -> Generated | None:
        """The same of the prompt processing."""
        found = (row for row in self.prefills if (row.work, row.variant) == (work, variant))
        return next(found, None)

    def theirs(self, work: Work) -> dict[str, Generated]:
        """Hugging Face's ways that were measured on a work."""
        return {peer.variant: peer for peer in self.peers if peer.work == work and peer.rate}


# --- files ------------------------------------------------------------------------------------


def merge(parts: list[tuple[str, Path]], allow_partial: bool = False) -> dict[str, Any]:
    """Runs of one machine, (preset, file) each, under the first one's header.

    A row that several presets hold is kept once, as the first measured it, and names them all. Its
    floor is that of its own run's large copy; "runs" keeps every run's. Runs of generation have no
    presets.
    """
    first = parts[0][1]
    form = GENERATE if not parts[0][0] else BENCH
    merged: dict[str, Any] = {}
    for preset, path in parts:
        raw = read_json(path, form, allow_partial)
        merged = merged or raw | {"command": []} | {name: [] for name in LISTS if name in raw}
        for name in ("versions", "device", "tuning"):
            if raw.get(name) != merged.get(name):
                raise ReportError(f"{path}: {name}: not that of {first}")
        merged["complete"] = merged.get("complete", True) and raw.get("complete", True)
        merged["command"].append(raw.get("command", ""))
        if form == BENCH:
            held = {row.name: row.raw for row in wrapped(path, merged, "rows", Row)} if merged["rows"] else {}
            merged["runs"] = [*merged.get("runs", []), {"preset": preset, "large_copy": raw["large_copy"]}]
            for row in wrapped(path, raw, "rows", Row):
                kept = held.get(row.name)
                if kept is None:
                    merged["rows"].append(kept := row.raw)
                kept["presets"] = [*kept.get("presets", []), preset]
        else:
            wrapped(path, raw, "rows", Generated)
            for name in LISTS:
                merged[name] += raw.get(name, [])
    merged["command"] = "; ".join(merged["command"])
    return merged


def file_name(raw: dict[str, Any]) -> str:
    """nvidia-h200.json for NVIDIA H200, cpu.json for a CPU, and with -generate for generation."""
    device = raw["device"]
    name = "cpu" if device.get("type") == "cpu" else device.get("name", "gpu").lower()
    stem = re.sub(r"[^a-z0-9]+", "-", name).strip("-")
    return f"{stem}{'-generate' if raw['format'] == GENERATE else ''}.json"


def write(path: Path, raw: dict[str, Any]) -> None:
    """One line per field, and per row of a list of rows, so that two runs can be compared by eye."""
    fields = []
    for name, value in raw.items():
        text = json.dumps(value, ensure_ascii=False)
        if name in LISTS and value:
            text = "[\n" + ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in value) + "\n ]"
        fields.append(f" {json.dumps(name)}: {text}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(fields) + "\n}\n", encoding="utf-8")
