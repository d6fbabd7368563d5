"""Several runs of one machine as one file."""

from pathlib import Path
from typing import Any

from .run import BENCH, GENERATE, LISTS, Generated, ReportError, Row, Run


def refuse_twice(runs: list[Run], measured: list[list[Generated]]) -> None:
    """A row that two runs hold, which a file may not."""
    found: dict[str, Run] = {}
    for run, rows in zip(runs, measured, strict=True):
        for row in rows:
            if row.name in found:
                raise ReportError(f"{run.path}: {row.name} is in {found[row.name].path} too")
        found |= {row.name: run for row in rows}


def merge(parts: list[tuple[str, Path]]) -> dict[str, Any]:
    """Runs of one machine, (preset, file) each, under the first one's header.

    A row that several presets hold is kept once, as the first measured it, and names them all. Its
    floor is that of its own run's large copy; "runs" keeps every run's. Runs of generation have no
    presets.
    """
    operators = bool(parts[0][0])
    for preset, path in parts:
        if bool(preset) != operators:
            raise ReportError(f"{path}: expected PRESET=FILE for all runs, or for none of them")
    runs = [Run(path, BENCH if operators else GENERATE) for _, path in parts]
    first = runs[0].raw
    for run in runs:
        for name in ("versions", "device", "tuning"):
            if run.raw.get(name) != first.get(name):
                raise ReportError(f"{run.path}: {name}: not that of {runs[0].path}")
    rows = [run.objects("rows", Row if operators else Generated) for run in runs]
    if not operators:
        refuse_twice(runs, rows)
        refuse_twice(runs, [run.objects("prefill", Generated) for run in runs])
    merged = first | {"command": "; ".join(run.raw.get("command", "") for run in runs), "complete": True}
    merged |= {name: [entry for run in runs for entry in run.raw.get(name, [])] for name in LISTS if name in first}
    if operators:
        kept: dict[str, dict[str, Any]] = {}
        for (preset, _), measured in zip(parts, rows, strict=True):
            for row in measured:
                raw = kept.setdefault(row.name, row.raw)
                raw["presets"] = [*raw.get("presets", []), preset]
        copies = [{"preset": preset, "large_copy": run.raw["large_copy"]} for (preset, _), run in zip(parts, runs)]
        merged |= {"rows": list(kept.values()), "runs": [*first.get("runs", []), *copies]}
    return merged
