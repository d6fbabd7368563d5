"""Times Hugging Face's ways to generate, and says in words how."""

import gc
import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch

from .huggingface import WAYS, Generate, Ids, build, generator

WARM_UPS, RUNS = 3, 3
MOST_RUNS, ENOUGH_SECONDS = 9, 6.0  # further runs of what is fast
METHOD = {
    "tokens_per_s": f"batch * (tokens - 1) over the time of a whole call less that of a call for "
    f"one token; median, least and most of at least {RUNS} calls after {WARM_UPS}",
    "ttft_ms": "a call for one token, from the call until its id is on the host",
}


@dataclass(frozen=True)
class Case:
    """What is generated."""

    peer: str
    model: str
    dtype: str
    batch: int
    prompt: int
    tokens: int

    @property
    def label(self) -> str:
        """In words."""
        size = f"batch {self.batch}, prompt {self.prompt}"
        return f"{self.peer}: {self.model} {self.dtype}, {size}, {self.tokens} tokens"


class OutOfTimeError(Exception):
    """The time was over before enough calls."""


def batch_of(lists: list[list[int]], batch: int, prompt: int, device: torch.device) -> Ids:
    """Prompts in turn, each repeated until it is long enough."""
    chosen = [lists[row % len(lists)] for row in range(batch)]
    rows = [(ids * -(-prompt // len(ids)))[:prompt] for ids in chosen]
    return torch.tensor(rows, device=device)


def measure(
    case: Case, config: dict[str, Any], prompts: list[list[int]], device: torch.device, ends: float
) -> dict[str, Any]:
    """A row of the file: times, or why there are none. After `ends` of the monotonic clock nothing is begun."""
    row = {**asdict(case), "how": WAYS[case.peer].text}
    try:
        return row | {"status": "ok", **_timed(case, config, prompts, device, ends)}
    except OutOfTimeError:
        reason = "time"
    except Exception as error:  # whatever a compiler or an allocator says
        first = (str(error).strip() or "no message").splitlines()[0]
        reason = f"{type(error).__name__}: {first}"[:160]
    return row | {"status": "not measured", "reason": reason}


def _timed(
    case: Case, config: dict[str, Any], prompts: list[list[int]], device: torch.device, ends: float
) -> dict[str, Any]:
    if time.monotonic() >= ends:
        raise OutOfTimeError
    # The memory of the last model and of its graphs.
    torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    way = WAYS[case.peer]
    model = build(config, getattr(torch, case.dtype), device, way.attention)
    ids = batch_of(prompts, case.batch, case.prompt, device)
    whole, first = _times(generator(model, way, ids, case.tokens), ids, case.tokens, ends)
    until_first = statistics.median(first)
    if min(whole) <= until_first:
        raise RuntimeError("too few tokens to tell the decode from the first token")
    decoded = case.batch * (case.tokens - 1)
    rates = [decoded / (seconds - until_first) for seconds in whole]
    return {
        "runs": len(whole),
        "tokens_per_s": _spread(rates),
        "ttft_ms": _spread([seconds * 1e3 for seconds in first]),
    }


def _times(generate: Generate, prompts: Ids, tokens: int, ends: float) -> tuple[list[float], list[float]]:
    """Seconds of whole calls and of calls for one token, in turn."""
    whole: list[float] = []
    first: list[float] = []
    for number in range(WARM_UPS + MOST_RUNS):
        over = time.monotonic() >= ends
        if number >= WARM_UPS + RUNS and (over or sum(whole) > ENOUGH_SECONDS):
            break
        if over:
            raise OutOfTimeError
        seconds = [_seconds(generate, prompts, count) for count in (tokens, 1)]
        if number >= WARM_UPS:
            whole.append(seconds[0])
            first.append(seconds[1])
    return whole, first


def _seconds(generate: Generate, prompts: Ids, tokens: int) -> float:
    """One call, until its ids are on the host."""
    begin = time.perf_counter()
    ids = generate(tokens).cpu()
    seconds = time.perf_counter() - begin
    wanted = (prompts.shape[0], prompts.shape[1] + tokens)
    if tuple(ids.shape) != wanted:
        raise RuntimeError(f"expected ids {wanted}, got {tuple(ids.shape)}")
    return seconds


def _spread(values: list[float]) -> dict[str, float]:
    found = {"p50": statistics.median(values), "min": min(values), "max": max(values)}
    return {name: round(value, 4) for name, value in found.items()}
