"""Several runs of `warpfuse bench generate` on one machine as one file."""

import json
from pathlib import Path
from typing import Any

from .errors import ReportError
from .fields import read_json
from .generation import FORMAT, load_generation
from .merge import file_name

SAME = ("versions", "device")
LISTS = ("rows", "prefill", "accuracy")


def join(parts: list[Path]) -> dict[str, Any]:
    """The rows of all under the first file's header, whose prompts are those of its own rows."""
    joined: dict[str, Any] = {}
    for path in parts:
        load_generation(path)  # its checks
        raw = read_json(path, FORMAT).raw
        if not joined:
            joined = raw | {name: [] for name in LISTS}
        for name in SAME:
            if raw.get(name) != joined.get(name):
                raise ReportError(f"{path}: {name}: not that of {parts[0]}")
        for name in LISTS:
            joined[name] += raw.get(name) or []
    return joined


def generation_name(device: dict[str, Any]) -> str:
    """The file beside that of the operators' benchmark on the same device."""
    stem = "cpu" if device.get("type") == "cpu" else Path(file_name(device.get("name", "gpu"))).stem
    return f"{stem}-generate.json"


def write_generation(path: Path, raw: dict[str, Any]) -> None:
    """One line a field, and in the lists of objects one line a row."""
    fields = []
    for name, value in raw.items():
        text = json.dumps(value, ensure_ascii=False)
        if name in LISTS and value:
            rows = (f"  {json.dumps(row, ensure_ascii=False)}" for row in value)
            text = "[\n" + ",\n".join(rows) + "\n ]"
        fields.append(f" {json.dumps(name)}: {text}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(fields) + "\n}\n", encoding="utf-8")
