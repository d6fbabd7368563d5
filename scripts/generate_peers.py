#!/usr/bin/env python3
"""Times Hugging Face's GPT-2 on the prompts of `warpfuse bench generate`, on the same device.

    generate_peers.py --rows docs/benchmarks/nvidia-h200-generate.json

Writes the file beside with -peers before its suffix, anew after each row, which scripts/report.py
puts into docs/benchmarks/<gpu>.md. What there is no time for is named in it as not measured. Exit code
2: unusable input; 3: transformers is not installed, or there is no such device.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from report.run import GENERATE, GENERATE_PEERS, ReportError, Run, write

if TYPE_CHECKING:
    from peers.huggingface_run import Case

ROOT = Path(__file__).resolve().parent.parent
USAGE, UNAVAILABLE = 2, 3
sys.path.append(str(ROOT / "traced_models"))  # its configurations of models

# (peers, model, dtype, batch, prompt), the most important first.
ALL = COMPILED, EAGER, SDPA, LOOP = "hf static+compile", "hf eager", "hf sdpa", "hf compiled loop"
PLAN = (
    (ALL, "distilgpt2", "float16", 1, 32),
    (ALL, "distilgpt2", "float32", 1, 32),
    ((COMPILED,), "gpt2", "float16", 1, 32),
    ((COMPILED, SDPA, EAGER, LOOP), "distilgpt2", "float16", 32, 512),
    ((SDPA, LOOP), "gpt2", "float16", 1, 32),
    ((COMPILED,), "distilgpt2", "float16", 1, 512),
    ((COMPILED,), "distilgpt2", "float16", 32, 32),
    ((COMPILED,), "distilgpt2", "float32", 32, 512),
)


def parse_arguments(words: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, required=True, help="a run of warpfuse bench generate")
    parser.add_argument("--limit-s", type=float, default=240, help="default: %(default)s")
    parser.add_argument("--only", default="", help="only rows whose text has this in it")
    parser.add_argument("-n", "--tokens", type=int, default=224, help="default: %(default)s")
    parser.add_argument(
        "--case", nargs=4, action="append", metavar=("MODEL", "DTYPE", "BATCH", "PROMPT"),
        help="these in place of the plan, by all peers",
    )  # fmt: skip
    return parser.parse_args(words)


def missing(kind: str) -> str:
    """What keeps the peers from running on that kind of device; empty if nothing does."""
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as error:
        return f"{error.name} is not installed"
    if kind == "cuda" and not torch.cuda.is_available():
        return "there is no GPU"
    return ""


def cases(arguments: argparse.Namespace) -> list["Case"]:
    """The rows to measure, in order."""
    from peers.huggingface_run import Case

    plan = PLAN
    if arguments.case:
        plan = [(ALL, model, dtype, int(batch), int(prompt)) for model, dtype, batch, prompt in arguments.case]
    found = [Case(peer, *what, tokens=arguments.tokens) for peers, *what in plan for peer in peers]
    chosen = [case for case in found if arguments.only in case.label]
    if not chosen:
        raise ReportError(f"--only: no row has {arguments.only!r} in its text")
    return chosen


def header(device: dict[str, Any], command: str) -> dict[str, Any]:
    """Everything of the file but its rows."""
    import torch
    import transformers
    from peers.huggingface_run import METHOD
    from peers.works import versions

    return {
        "format": GENERATE_PEERS,
        "complete": False,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": command,
        "versions": {"transformers": transformers.__version__, **versions(), "cuda": torch.version.cuda},
        "device": device,
        "timing": METHOD,
        "rows": [],
    }


def measure_all(arguments: argparse.Namespace, prompts: list[list[int]], raw: dict[str, Any], path: Path) -> None:
    """All rows; the file is there after the first."""
    import torch
    from gpt2_config import BUILT_IN
    from peers.huggingface_run import measure

    device = torch.device(raw["device"]["type"])
    started = time.monotonic()
    wanted = cases(arguments)
    for number, case in enumerate(wanted, 1):
        if case.model not in BUILT_IN:
            raise ReportError(f"model: expected {' or '.join(BUILT_IN)}, got {case.model}")
        row = measure(case, BUILT_IN[case.model], prompts, device, started + arguments.limit_s)
        raw["rows"].append(row)
        raw["complete"] = number == len(wanted)
        write(path, raw)
        rate = f"{row['tokens_per_s']['p50']:,.0f} tokens/s" if row["status"] == "ok" else ""
        said = ", ".join(text for text in (rate, row.get("how"), row.get("reason")) if text)
        seconds = time.monotonic() - started
        print(f"{number}/{len(wanted)} {seconds:.0f} s {case.label}: {said}", file=sys.stderr)


def read_prompts(path: Path) -> tuple[dict[str, Any], list[list[int]]]:
    """The device of a run of ours, and the ids that it was given."""
    run = Run(path, GENERATE)
    lists = run.raw.get("prompts", {}).get("ids") or [[]]
    if not all(ids and all(type(each) is int for each in ids) for ids in lists):
        raise ReportError(f"{path}: prompts: ids: expected lists of token ids")
    return run.device, lists


def main(words: list[str] | None = None) -> int:
    """One line on stderr for every failure."""
    arguments = parse_arguments(words)
    try:
        device, prompts = read_prompts(arguments.rows)
        if reason := missing(device.get("type", "")):
            print(f"generate_peers.py: not measured: {reason}", file=sys.stderr)
            return UNAVAILABLE
        raw = header(device, f"scripts/generate_peers.py --limit-s {arguments.limit_s:g}")
        measure_all(arguments, prompts, raw, arguments.rows.with_name(f"{arguments.rows.stem}-peers.json"))
    except (ReportError, OSError, ValueError) as error:
        print(f"generate_peers.py: error: {error}", file=sys.stderr)
        return USAGE
    return 0


if __name__ == "__main__":
    sys.exit(main())
