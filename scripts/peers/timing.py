"""GPU times: graphs of calls that rotate over inputs and outputs, and single calls by events.

A GPU that was idle is slow at first, so that whatever is timed first would lose: all implementations
run in turn, untimed, until the GPU was busy for a while, and every other round goes the other way.
"""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .cases import sets_for
from .suite import Result

AHEAD_CYCLES = 400_000  # about 0.2 ms in which the host queues what is timed
AWAKE_S = 0.1  # of work until the clocks are up


@dataclass(frozen=True)
class Effort:
    """How long is measured."""

    replays: int
    sample_us: float
    events: int


@dataclass(frozen=True)
class Work:
    """Something to time: it is given the number of a call."""

    call: Callable[[int], Result]
    sets: int


def percentiles(samples: list[float]) -> dict[str, float]:
    """The median, 5th and 95th percentile, as a file names them."""
    cuts = statistics.quantiles(samples, n=20, method="inclusive")
    found = {"p50_us": statistics.median(samples), "p5_us": cuts[0], "p95_us": cuts[-1]}
    return {name: round(value, 4) for name, value in found.items()}


def elapsed_us(action: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    """What the GPU takes for `action`, which is queued while the GPU is still busy, with what comes before it too."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(AHEAD_CYCLES)
    before()
    begin.record()
    action()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def in_turn(names: list[str], turns: int, sample: Callable[[str, int], float]) -> dict[str, list[float]]:
    """Samples of all names by turns, so that a drift of the clock is shared by all."""
    samples: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(turns):
        for name in names if turn % 2 == 0 else reversed(names):
            samples[name].append(sample(name, turn))
    return samples


def nbytes_of(result: Result) -> int:
    """Of all tensors of a result."""
    return sum(tensor.nbytes for tensor in (result if isinstance(result, tuple) else (result,)))


class Timer:
    """Times on the current GPU."""

    def __init__(self, effort: Effort) -> None:
        self.effort = effort
        self.l2_bytes = torch.cuda.get_device_properties().L2_cache_size
        self.flush = torch.empty(2 * self.l2_bytes, dtype=torch.uint8, device="cuda")
        self.stream = torch.cuda.Stream()

    def method(self) -> dict[str, str]:
        """How, in words."""
        return {
            "graph": "CUDA graph of calls that rotate over inputs of more than twice the L2 "
            f"({self.l2_bytes} bytes) in all, and over as much output; {self.effort.replays} "
            f"replays of at least {self.effort.sample_us:.0f} us, all implementations in turn, after they ran untimed",
            "event": "one call between two events, after twice the L2's size was written; median "
            f"of {self.effort.events}, all implementations in turn",
            "copy": "cudaMemcpy: of the large copy by events, of the same size in a graph as above",
        }

    def wake(self, work: Callable[[], object]) -> None:
        """Until the GPU's clocks are those of a busy one."""
        end = time.monotonic() + AWAKE_S
        while time.monotonic() < end:
            work()
            torch.cuda.synchronize()

    def graph_times(self, works: dict[str, Work]) -> dict[str, dict[str, float]]:
        """Percentiles of replays."""
        recorded = {name: self._record(work) for name, work in works.items()}
        self.wake(lambda: [graph.replay() for graph, _ in recorded.values()])

        def sample(name: str, _turn: int) -> float:
            graph, calls = recorded[name]
            return elapsed_us(graph.replay) / calls

        samples = in_turn(list(works), self.effort.replays, sample)
        return {name: percentiles(values) for name, values in samples.items()}

    def event_times(self, works: dict[str, Work]) -> dict[str, float]:
        """Medians of one call at a time with a cold cache."""
        self.wake(lambda: [work.call(0) for work in works.values()])

        def sample(name: str, turn: int) -> float:
            work = works[name]
            return elapsed_us(lambda: work.call(turn % work.sets), before=self.flush.zero_)

        samples = in_turn(list(works), self.effort.events, sample)
        return {name: round(statistics.median(values), 4) for name, values in samples.items()}

    def _record(self, work: Work) -> tuple[torch.cuda.CUDAGraph, int]:
        """A graph of at least the sample's time, and its number of calls."""
        calls = work.sets
        while True:
            graph = self._capture(work, calls)
            graph.replay()
            call_us = elapsed_us(graph.replay) / calls
            wanted = math.ceil(self.effort.sample_us / (call_us * work.sets)) * work.sets
            if wanted <= calls:
                return graph, calls
            enough = call_us * calls > self.effort.sample_us / 2
            calls = wanted
            if enough:
                return self._capture(work, calls), calls

    def _capture(self, work: Work, calls: int) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        kept: deque[Result] = deque()  # results that memory is not yet used again for
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            graph.capture_begin()
            try:
                for i in range(calls):
                    result = work.call(i % work.sets)
                    kept.append(result)
                    if len(kept) > sets_for(nbytes_of(result), self.l2_bytes):
                        kept.popleft()
            finally:
                graph.capture_end()
        torch.cuda.synchronize()
        return graph

    def copy(self, nbytes: int, sets: int) -> Work:
        """Copies that move `nbytes` each, half of them read."""
        source, target = (
            torch.empty((sets, int(nbytes) // 2), dtype=torch.uint8, device="cuda").fill_(1)
            for _ in range(2)
        )
        return Work(lambda i: target[i].copy_(source[i]), sets)

    def copy_sets(self, nbytes: float) -> int:
        """How many copies of that size the L2 cannot hold."""
        return sets_for(int(nbytes) // 2, self.l2_bytes)
