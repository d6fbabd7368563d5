"""Runs of `warpfuse bench`, `bench generate` and of their peers: the JSON, as objects and as files."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

BENCH, GENERATE, GENERATE_PEERS = "warpfuse-bench-1", "warpfuse-generate-1", "warpfuse-generate-peers-1"
DIRECTIONS = ("forward", "backward", "both")  # both: in one call
LISTS = ("rows", "prefill", "accuracy")
RENAMED = {"refused": "unsupported", "seed": "basic"}  # in files of before 2026-11-23


class ReportError(Exception):
    """Input that cannot be reported on: one line that names the file and the place in it."""


@contextmanager
def reading(place: Path | str) -> Iterator[None]:
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


def positive(raw: dict[str, Any], name: str) -> float | None:
    """A number above 0, if there is one."""
    value = raw.get(name)
    if value is not None and (isinstance(value, bool) or not 0 < value < float("inf")):
        raise ValueError(f"{name}: expected a number above 0, got {value!r}")
    return value


def ratio(above: float | None, below: float | None) -> float | None:
    """Their quotient where both are known."""
    return above / below if above and below else None


class Run:
    """A file, and the device that it tells of."""

    def __init__(self, path: Path, form: str, allow_partial: bool = False) -> None:
        self.path, self.raw = path, read_json(path, form, allow_partial)
        with reading(path):
            self.device: dict[str, Any] = self.raw["device"]
            self.device_name: str = self.device.get("name", "unknown")
            self.on_gpu = self.device.get("type") == "cuda"

    def objects(self, name: str, kind: type) -> list[Any]:
        """Those of a list, each as a `kind`; its `name` tells it from the others."""
        found: dict[str, Any] = {}
        for i, entry in enumerate(self.raw.get(name, [])):
            with reading(f"{self.path}: {name}[{i}]"):
                made = kind(entry)
            if found.setdefault(made.name, made) is not made:
                raise ReportError(f"{self.path}: {made.name} is there twice")
        if not found and name == "rows":
            raise ReportError(f"{self.path}: no rows")
        return list(found.values())


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
    def title(self) -> str:
        """The shape, with whatever is not plain softmax of the last dimension."""
        text = " x ".join(map(str, self.shape)) if len(self.shape) == 2 else str(list(self.shape))
        if self.levels:
            text += f", {', '.join(f'{height} x {width}' for height, width in self.levels)}"
        if self.dim != len(self.shape) - 1:
            text += f" over dim {self.dim}"
        attention = self.operator == "scaled_masked_softmax"
        if attention or self.mask != "none":
            text += f" {self.mask if self.mask != 'none' else 'no mask'}"
        return text if attention or self.operator == "softmax" else f"{self.operator} {text}"


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
        self.p5, self.p95 = positive(times, "p5_us") or self.p50, positive(times, "p95_us") or self.p50
        self.event_p50 = positive(times, "event_p50_us")
        self.default_malloc_p50 = positive(times, "default_malloc_p50_us")
        self.extra_bytes: int | None = raw.get("extra_bytes")  # allocated beside inputs and result
        self.max_error: float | None = raw.get("max_error")  # of an element, over the size of its terms
        self.of_plugin = "launches" in raw  # whether its kernels are the plugin's


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
        self.name = f"{self.key.title} {self.key.dtype} {self.direction}"

    def figure(self, variant: str, name: str) -> float | None:
        """One of a variant's, None where it was not measured."""
        found = self.variants.get(variant)
        return getattr(found, name) if found else None

    def time(self, variant: str = "warpfuse") -> float | None:
        """The median time of a variant that gave right results, else None."""
        return self.figure(variant, "p50")

    def share(self, variant: str = "warpfuse") -> float | None:
        """The floor's part of a variant's time."""
        return ratio(self.floor, self.time(variant))

    def speed_up(self, variant: str) -> float | None:
        """How many times ours is faster."""
        return ratio(self.time(variant), self.time())

    def of_copy(self) -> float | None:
        """The time of a copy of the same bytes over ours."""
        return ratio(self.copy, self.time())


class Bench(Run):
    """A benchmark of operators."""

    def __init__(self, path: Path, allow_partial: bool = False) -> None:
        super().__init__(path, BENCH, allow_partial)
        with reading(path):
            self.copy_gb_per_s: float = self.raw["large_copy"]["gb_per_s"]
            self.copy_bytes: float = self.raw["large_copy"]["bytes"]
            self.empty_kernel = positive(self.raw, "empty_kernel_us")
        self.rows: list[Row] = self.objects("rows", Row)

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
        self.name = f"{' '.join(self.work.cells)} {self.variant}{', graph' * self.graph}"
        ok = raw.get("status", "ok") == "ok"
        self.rate: dict[str, float] | None = (raw.get("tokens_per_s") or raw["ms"]) if ok else None
        self.p50 = (positive(self.rate, "p50") or self.rate["p50"]) if self.rate else None

    @property
    def floor_share(self) -> float | None:
        """The floor's part of a step's median time."""
        return ratio(positive(self.raw, "floor_us"), (self.raw.get("latency_us") or {}).get("p50"))


class Generation(Run):
    """A run of ours, and that of Hugging Face's on the same prompts with -peers beside it, if it is there."""

    def __init__(self, path: Path, allow_partial: bool = False) -> None:
        super().__init__(path, GENERATE, allow_partial)
        self.rows: list[Generated] = self.objects("rows", Generated)
        self.prefills: list[Generated] = self.objects("prefill", Generated)
        theirs = path.with_name(f"{path.stem}-peers.json")
        self.hf = Run(theirs, GENERATE_PEERS) if theirs.exists() else None
        self.peers: list[Generated] = self.hf.objects("rows", Generated) if self.hf else []
        self._rows = {(row.work, row.variant, row.graph): row for row in self.rows}
        self._prefills = {(row.work, row.variant): row for row in self.prefills}

    def find(self, work: Work, variant: str, graph: bool) -> Generated | None:
        """The row of a variant, None where it was not measured."""
        return self._rows.get((work, variant, graph))

    def prefill(self, work: Work, variant: str) -> Generated | None:
        """The same of the prompt processing."""
        return self._prefills.get((work, variant))

    def theirs(self, work: Work) -> dict[str, Generated]:
        """Hugging Face's ways that were measured on a work."""
        return {peer.variant: peer for peer in self.peers if peer.work == work and peer.rate}


# --- files ------------------------------------------------------------------------------------


def file_name(raw: dict[str, Any]) -> str:
    """nvidia-h200.json for NVIDIA H200, cpu.json for a CPU, and with -generate for generation."""
    device = raw["device"]
    name = "cpu" if device.get("type") == "cpu" else device.get("name", "gpu").lower()
    stem = re.sub(r"[^a-z0-9]+", "-", name).strip("-")
    return f"{stem}{'-generate' if raw['format'] == GENERATE else ''}.json"


def replace(path: Path, text: str) -> None:
    """Write a file under another name first, so that nobody finds half of it; one that cannot be written stays as it was."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise ReportError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):
            draft.unlink()


def write(path: Path, raw: dict[str, Any]) -> None:
    """One line per field, and per row of a list of rows, so that two runs can be compared by eye."""
    fields = []
    for name, value in raw.items():
        text = json.dumps(value, ensure_ascii=False)
        if name in LISTS and value:
            text = "[\n" + ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in value) + "\n ]"
        fields.append(f" {json.dumps(name)}: {text}")
    replace(path, "{\n" + ",\n".join(fields) + "\n}\n")
