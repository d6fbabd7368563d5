"""Several runs of the benchmark on one machine as one file."""

import json
import re
from pathlib import Path
from typing import Any

from .errors import ReportError
from .fields import Fields, read_json
from .model import FORMAT, Key, load_bench, read_key

SAME = ("versions", "device", "tuning")


def merge(parts: list[tuple[str, Path]], allow_partial: bool = False) -> dict[str, Any]:
    """The rows of (preset, file) pairs under the first file's header.

    A row that several presets hold is kept once, as the first measured it, and names them all. Its
    floor is that of its own run's large copy; "runs" keeps every run's.
    """
    merged: dict[str, Any] = {}
    found: dict[tuple[Key, str], dict[str, Any]] = {}
    for preset, path in parts:
        load_bench(path, allow_partial)  # its checks
        raw = read_json(path, FORMAT).raw
        for name in SAME if merged else ():
            if raw.get(name) != merged.get(name):
                raise ReportError(f"{path}: {name}: not those of {parts[0][1]}")
        if not merged:
            merged = {**raw, "command": "", "runs": [], "rows": []}
        merged["complete"] = merged["complete"] and raw["complete"]
        merged["runs"].append({"preset": preset, "large_copy": raw["large_copy"]})
        merged["command"] += ("; " if merged["command"] else "") + raw.get("command", "")
        for row in raw["rows"]:
            row = found.setdefault(row_key(row), row)
            row["presets"] = [*row.get("presets", []), preset]
    merged["rows"] = list(found.values())
    return merged


def row_key(row: dict[str, Any]) -> tuple[Key, str]:
    """What tells a row of the JSON from others."""
    return read_key(Fields(row, "row")), row["direction"]


def file_name(device: str) -> str:
    """nvidia-h200.json for NVIDIA H200."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") + ".json"


def write_bench(path: Path, raw: dict[str, Any]) -> None:
    """One line a row, so that two runs can be compared by eye."""
    header = {name: value for name, value in raw.items() if name != "rows"}
    text = json.dumps(header, indent=1, ensure_ascii=False)[:-2]
    rows = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in raw["rows"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{text},\n "rows": [\n{rows}\n ]\n}}\n', encoding="utf-8")
