"""Measures the rows of a benchmark file, one after the other."""

import json
import math
import multiprocessing
import subprocess
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from report.run import Row

from .cases import Case, case_of, sets_for
from .suite import Call, Inputs, Suite
from .timing import Effort, Timer, Work, elapsed_us, percentiles
from .works import calls_of, suite_of, versions

SEED = 20
LARGE_COPY_BYTES = 8 << 30  # read and written
COMPILERS = 8  # processes, each with memory for a row's tensors
# Of the compiler about its own choices, once for each kernel.
warnings.filterwarnings("ignore", category=UserWarning, module="torch._inductor")

EAGER = ("warpfuse", "aten", "chain")  # nothing of theirs is compiled when they are called


def start(plugin: Path) -> None:
    """What this process and those that compile begin with."""
    torch.ops.load_library(str(plugin))
    torch.set_grad_enabled(False)


def compile_ahead(rows: list[Row], plugin: Path) -> None:
    """Fills the compilers' caches on all cores; what is tuned by times is left to the run."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(COMPILERS, mp_context=context, initializer=start, initargs=(plugin,)) as pool:
        for message in pool.map(_compile, map(case_of, rows)):
            if message:
                print(f"compiling ahead: {message}", file=sys.stderr)


def _compile(case: Case) -> str:
    import torch._inductor.config as config

    config.autotune_local_cache = False  # the other processes disturb the times
    config.compile_threads = 1
    torch.cuda.empty_cache()  # of the process's last case
    suite = suite_of(case, torch.device("cuda"))
    inputs = _inputs_of(suite, 1)[0]
    failed = ""
    for name, call in calls_of(suite).items():
        if name not in EAGER:
            try:
                call(*inputs)
            except Exception as error:  # the run itself reports it as unsupported
                failed = f"{name}: {_reason(error)}"
    return failed


def _inputs_of(suite: Suite, sets: int) -> list[Inputs]:
    generator = torch.Generator(suite.device).manual_seed(SEED)
    return [suite.inputs(generator) for _ in range(sets)]


def header(commit: str, command: str, timer: Timer) -> dict[str, Any]:
    """Everything of the file but its rows, with the large copy measured now."""
    build = json.loads(torch.ops.warpfuse.build_info())
    device = torch.cuda.get_device_properties()
    copy = timer.copy(LARGE_COPY_BYTES, 1)
    timer.wake(lambda: copy.call(0))
    copy_us = percentiles([elapsed_us(lambda: copy.call(0)) for _ in range(timer.effort.replays)])["p50_us"]
    return {
        "format": "warpfuse-bench-1",
        "complete": False,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": command,
        "versions": {
            "warpfuse": build["version"],
            "commit": commit,
            **versions(),
            "cuda": torch.version.cuda,
            "driver": _driver(),
        },
        "device": {
            "type": "cuda",
            "name": device.name,
            "multiprocessors": device.multi_processor_count,
            "memory_bytes": device.total_memory,
            "l2_bytes": device.L2_cache_size,
        },
        "timing": timer.method(),
        "large_copy": {"bytes": LARGE_COPY_BYTES, "p50_us": copy_us, "gb_per_s": LARGE_COPY_BYTES / copy_us / 1e3},
        "rows": [],
    }


def _driver() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.split("\n")[0].strip()


def measure(row: Row, timer: Timer, copy_gb_per_s: float) -> dict[str, Any]:
    """A row of the file: all implementations checked, then the right ones timed."""
    torch.cuda.empty_cache()  # what the graphs of the last row held
    case = case_of(row)
    suite = suite_of(case, torch.device("cuda"))
    inputs = _inputs_of(suite, sets_for(suite.input_bytes, timer.l2_bytes))
    variants: dict[str, dict[str, Any]] = {}
    works: dict[str, Work] = {}
    for name, call in calls_of(suite).items():
        variants[name] = {"name": name, **_checked(suite, name, call, inputs[0])}
        if variants[name]["status"] == "ok":
            works[name] = Work(lambda i, call=call: call(*inputs[i]), len(inputs))
    least = case.least_bytes
    copy = timer.copy(int(least), timer.copy_sets(least))
    times = timer.graph_times({**works, "copy": copy})
    events = timer.event_times(works)
    for name, variant in variants.items():
        if name in works:
            variant |= times[name] | {"event_p50_us": events[name]}
    return {
        "operator": case.operator,
        "direction": row.direction,
        "shape": list(case.shape),
        "dim": case.dim,
        "dtype": row.key.dtype,
        "mask": case.mask,
        **({"levels": [list(level) for level in case.levels]} if case.levels else {}),
        "least_bytes": int(least),
        "floor_us": least / copy_gb_per_s / 1e3,
        "same_size_copy": times["copy"],
        "variants": list(variants.values()),
    }


def _checked(suite: Suite, name: str, call: Call, inputs: Inputs) -> dict[str, Any]:
    """Whether an implementation takes the case, and whether its result is right."""
    try:
        result = call(*inputs)
        torch.cuda.synchronize()
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:  # whatever an implementation says to a case that it cannot take
        return {"status": "unsupported", "reason": _reason(error)}
    error = suite.error(inputs, suite.as_asked(name, result))
    if math.isnan(error) or error > 1:
        return {"status": "wrong", "reason": f"an element is off by {error:.3g} times the allowed"}
    return {"status": "ok", "error_of_allowed": round(error, 4)}


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:160]


def effort(quick: bool) -> Effort:
    """How long is measured."""
    return Effort(replays=5, sample_us=1000, events=5) if quick else Effort(20, 4000, 15)
