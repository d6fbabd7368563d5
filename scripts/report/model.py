"""The benchmark's JSON as objects, checked while it is read."""

import math
from dataclasses import dataclass, field
from pathlib import Path

from .errors import ReportError
from .fields import Fields, read_json

FORMAT = "warpfuse-bench-1"
DIRECTIONS = ("forward", "backward", "both")  # both: in one call
STATES = ("ok", "unsupported", "wrong")
RENAMED = {"refused": "unsupported", "seed": "basic"}  # in files of before 2026-11-23


@dataclass(frozen=True)
class Key:
    """What a measurement is of, but for its direction."""

    operator: str
    shape: tuple[int, ...]
    dim: int
    dtype: str
    mask: str

    @property
    def label(self) -> str:
        """The shape for people, with whatever is not plain softmax of the last dimension."""
        text = " x ".join(str(size) for size in self.shape)
        if len(self.shape) != 2:
            text = f"[{', '.join(str(size) for size in self.shape)}]"
        if self.dim != len(self.shape) - 1:
            text += f" over dim {self.dim}"
        return text


@dataclass(frozen=True)
class Launch:
    """One kernel launch: its configuration and how full it leaves a multiprocessor."""

    tier: str
    kernel: str
    grid: int
    threads: int
    cluster: int
    lane_packs: int
    registers: int
    shared_bytes: int
    local_bytes: int
    blocks_per_sm: int
    warps_per_sm: int
    max_warps_per_sm: int


@dataclass(frozen=True)
class Variant:
    """One implementation on one row; times in microseconds, None unless its status is ok."""

    name: str
    status: str
    reason: str
    p50: float | None
    p5: float | None
    p95: float | None
    event_p50: float | None
    default_malloc_p50: float | None
    launches: tuple[Launch, ...]
    extra_bytes: int | None  # the most that was allocated beside inputs and result


@dataclass(frozen=True)
class Traffic:
    """Bytes that a profiler counted between the L2 cache and memory during one call."""

    read: float
    written: float


@dataclass(frozen=True)
class Row:
    """All implementations on one shape, dtype, mask and direction."""

    key: Key
    direction: str
    presets: tuple[str, ...]
    least_bytes: float
    fused_bytes: float
    unfused_bytes: float
    floor: float
    copy: float | None
    variants: dict[str, Variant] = field(hash=False)
    traffic: dict[str, Traffic] = field(hash=False)

    def time(self, name: str) -> float | None:
        """The median time of a variant that gave right results, else None."""
        variant = self.variants.get(name)
        return variant.p50 if variant else None

    def share(self, name: str) -> float | None:
        """The floor's part of a variant's time."""
        time = self.time(name)
        return self.floor / time if time else None


@dataclass(frozen=True)
class Bench:
    """A benchmark file."""

    path: Path
    date: str
    command: str
    versions: dict[str, str]
    device: dict[str, str]
    timing: dict[str, str]
    traffic_how: str
    copy_bytes: float
    copy_gb_per_s: float
    run_copies: tuple[float, ...]  # GB/s of the large copy in each of the runs that were merged
    empty_kernel: float | None
    rows: list[Row]

    @property
    def device_name(self) -> str:
        return self.device.get("name", "unknown")

    def preset(self, name: str) -> list[Row]:
        """The rows that a preset measured; those of a file that was not merged are its table."""
        return [row for row in self.rows if name in (row.presets or ("table",))]


def read_key(fields: Fields) -> Key:
    """The fields that name a measurement, in the benchmark's and in the peers' file alike."""
    shape = fields.get("shape", list)
    if not shape or any(type(size) is not int or size < 1 for size in shape):
        raise ReportError(f"{fields.where}: shape: expected sizes above 0, got {shape!r:.40}")
    dim = fields.get("dim", int, -1)
    if not -len(shape) <= dim < len(shape):
        raise ReportError(f"{fields.where}: dim: {dim} is no dimension of {shape}")
    return Key(
        operator=fields.get("operator", str),
        shape=tuple(shape),
        dim=dim % len(shape),
        dtype=fields.get("dtype", str),
        mask=fields.get("mask", str, "none"),
    )


def _choice(fields: Fields, name: str, choices: tuple[str, ...]) -> str:
    value = fields.get(name, str)
    value = RENAMED.get(value, value)
    if value not in choices:
        raise ReportError(f"{fields.where}: {name}: expected {' or '.join(choices)}, got {value}")
    return value


def _launch(fields: Fields) -> Launch:
    numbers = {
        name: fields.get(name, int)
        for name in Launch.__annotations__
        if name not in ("tier", "kernel")
    }
    return Launch(tier=fields.get("tier", str), kernel=fields.get("kernel", str), **numbers)


def _variant(fields: Fields) -> Variant:
    status = _choice(fields, "status", STATES)
    ok = status == "ok"
    p50 = fields.positive("p50_us") if ok else None
    return Variant(
        name=fields.get("name", str),
        status=status,
        reason=fields.get("reason", str, ""),
        p50=p50,
        p5=fields.positive("p5_us", p50) if ok else None,
        p95=fields.positive("p95_us", p50) if ok else None,
        event_p50=fields.positive("event_p50_us", None) if ok else None,
        default_malloc_p50=fields.positive("default_malloc_p50_us", None) if ok else None,
        launches=tuple(_launch(launch) for launch in fields.objects("launches", [])),
        extra_bytes=fields.get("extra_bytes", int, None),
    )


def _row(fields: Fields) -> Row:
    copy = fields.object("same_size_copy", {})
    variants = [_variant(variant) for variant in fields.objects("variants")]
    least = fields.positive("least_bytes")
    return Row(
        key=read_key(fields),
        direction=_choice(fields, "direction", DIRECTIONS),
        presets=tuple(RENAMED.get(name, name) for name in fields.get("presets", list, [])),
        least_bytes=least,
        fused_bytes=fields.positive("fused_bytes", least),
        unfused_bytes=fields.positive("unfused_bytes", least),
        floor=fields.positive("floor_us"),
        copy=copy.positive("p50_us", None),
        variants={variant.name: variant for variant in variants},
        traffic={
            entry.get("variant", str): Traffic(
                entry.get("dram_read_bytes", float), entry.get("dram_write_bytes", float)
            )
            for entry in fields.objects("traffic", [])
        },
    )


def load_bench(path: Path, allow_partial: bool = False) -> Bench:
    """A benchmark file; one that was interrupted only if `allow_partial`."""
    fields = read_json(path, FORMAT)
    if not fields.get("complete", bool) and not allow_partial:
        raise ReportError(f"{path}: the run was not completed (--allow-partial takes it anyway)")
    copy = fields.object("large_copy")
    rows = [_row(row) for row in fields.objects("rows")]
    names = [(row.key, row.direction) for row in rows]
    for name in names:
        if names.count(name) > 1:
            raise ReportError(f"{path}: {name[0].label} {name[0].dtype} {name[1]} is there twice")
    if not rows:
        raise ReportError(f"{path}: no rows")
    return Bench(
        path=path,
        date=fields.get("date", str),
        command=fields.get("command", str, ""),
        versions=fields.texts("versions"),
        device=fields.texts("device"),
        timing=fields.texts("timing"),
        traffic_how=fields.get("traffic_how", str, ""),
        copy_bytes=copy.positive("bytes"),
        copy_gb_per_s=copy.positive("gb_per_s"),
        run_copies=tuple(
            run.object("large_copy").positive("gb_per_s") for run in fields.objects("runs", [])
        ),
        empty_kernel=fields.positive("empty_kernel_us", None),
        rows=rows,
    )


def elements(row: Row) -> int:
    """The number of elements of the row's tensor."""
    return math.prod(row.key.shape)
