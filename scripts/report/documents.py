"""The generated files: a page of tables for each device, and the plots."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from .dropout import dropout_table
from .errors import ReportError
from .generate import (
    Story,
    accuracy_block,
    cpu_block,
    figures_block,
    prefill_block,
    setup_block,
    speed_block,
    steps_block,
)
from .generate_plot import drawn, generate_plot
from .kernels import launch_table, basic_table, traffic_table
from .logprob import logprob_table
from .model import Bench
from .peers_table import peers_text
from .plots import PLOTS
from .tables import cpu_table, masked_table, setup_table, softmax_table, targets_summary
from .targets import Peers, for_device

NOT_MEASURED = "Not measured in this run."
HEADER = (
    "Written by `scripts/report.py` from the JSON beside it; not to be edited. "
    "[performance.md](../performance.md) is the summary, [bench.md](../bench.md) says how times are taken."
)

Block = TypeVar("Block")


@dataclass(frozen=True)
class Section(Generic[Block]):
    """A heading, what the reader must know, and the tables. A run may leave an optional one out."""

    title: str
    text: str
    block: Block
    optional: bool = False


GPU_SECTIONS: dict[str, Section[Callable[[Bench, Peers], str]]] = {
    "gpu-setup": Section(
        "The run", "![share of the large copy's bandwidth over columns](../images/share.svg)", setup_table
    ),
    "gpu-figures": Section("Targets", "", targets_summary),
    "softmax": Section(
        "softmax",
        "`floor` is the least bytes over the bandwidth of the large copy; `share` is floor / time; `of a copy` is the "
        "time of a copy of the same bytes / time.",
        softmax_table,
    ),
    "masked": Section(
        "scaled_masked_softmax", "The chain is ATen's: scale, mask and softmax as kernels of their own.", masked_table
    ),
    "logprob": Section(
        "fused_logprob",
        "log p(target) of logits [rows, V]. `both` is a forward and its backward as a trainer calls them: its floor is "
        "two reads and one write. `in place` writes the gradient over the logits. ATen's two ways are log_softmax with "
        "gather, and log_softmax with nll_loss, both with the backward kernels that autograd calls. Extra MB is the "
        "peak allocation beyond inputs and result.",
        logprob_table,
        optional=True,
    ),
    "dropout": Section(
        "Dropout",
        "Training, p = 0.2. `linear_dropout_softmax` is of [rows, in, out] with a bias; `both` is a training step: the "
        "forward, and the gradients of input, weight and bias. ATen is native_dropout and softmax (after at::linear for "
        "the last operator). `alone` is the plugin's softmax, or at::linear with its gradients, in the same run; "
        "`on top` is our time less that. tf32 is float32 with TF32 matmuls. Extra MB is the peak allocation beyond "
        "inputs and results, workspaces of matmuls included.",
        dropout_table,
        optional=True,
    ),
    "peers": Section(
        "Other implementations",
        "`scripts/bench_peers.py` times public kernels beside ours in one run: same inputs, results checked against "
        "float64, replays interleaved. torch.compile is warmed up and tuned first; a backward is the gradient's kernels "
        "without autograd. Kernels that the script cannot run keep a time of another run, in a column of its own.",
        peers_text,
    ),
    "basic": Section(
        "Algorithms",
        "Each algorithm of the row engine by itself, on the shapes of the preset `basic`.\n\n"
        "![the algorithms on 1024 x 8192](../images/ladder.svg)",
        basic_table,
    ),
    "traffic": Section(
        "Memory traffic", "Counted by Nsight Compute.\n\n![roofline](../images/roofline.svg)", traffic_table
    ),
    "launches": Section("Launches", "The kernels of the plugin that ran, and for which rows.", launch_table),
}
GENERATE_SECTIONS: dict[str, Section[Callable[[Story], str]]] = {
    "generate-setup": Section(
        "Generation: the run",
        "`scripts/bench_generate.sh --peers`: GPT-2 with random weights, which cost the same as trained ones, and the "
        "model that ships; then Hugging Face's GPT-2 on the same prompts. Decoding is greedy, for a fixed number of "
        "tokens.",
        setup_block,
    ),
    "generate-figures": Section("Generation: targets", "", figures_block),
    "generate": Section(
        "Generation: tokens per second",
        "Of all sequences of a batch after their first token, over the time of the decode; in brackets the least and "
        "the most of several runs. Ours run a step as a CUDA graph unless a column says otherwise. `hf eager` and "
        "`hf sdpa` are `generate()` with its defaults; `hf static+compile` is `generate()` with a static cache, which "
        "compiles the decode; `hf compiled loop` is a loop over the compiled model without the work that `generate()` "
        "does between steps.",
        speed_block,
    ),
    "generate-steps": Section(
        "Generation: a step",
        "The floor is the bytes of weights and cache over the read bandwidth measured in the same run; the empty graph "
        "has as many kernels, which do nothing. `softmax` is the share of its kernels, with those of scale and mask "
        "where these are not fused. p5 and p95 are the host's view: it sleeps until a token is due.",
        steps_block,
    ),
    "generate-prefill": Section("Generation: the prompt", "", prefill_block),
    "generate-accuracy": Section(
        "Generation: accuracy", "Against the baseline of the same dtype, on the same tokens.", accuracy_block
    ),
}
CPU_SECTIONS: dict[str, Section[Callable[[Bench, Peers], str]]] = {
    "cpu-setup": Section("The run", "", setup_table),
    "cpu-figures": Section("Targets", "", targets_summary),
    "cpu": Section(
        "Operators",
        "With warm pages: both allocation thresholds of malloc are raised. `default malloc` is ours and ATen's (or the "
        "chain's) with malloc's defaults.",
        cpu_table,
    ),
}
GENERATE_CPU_SECTIONS: dict[str, Section[Callable[[Story], str]]] = {
    "generate-cpu": Section("Generation", "", cpu_block),
}


@dataclass(frozen=True)
class Stories:
    """Generation on both devices, where it was measured."""

    gpu: Story | None
    cpu: Story | None


def _rendered(section: Section, text: str) -> str:
    return "\n\n".join(part for part in (f"## {section.title}", section.text, text) if part)


def _bench_sections(
    sections: dict[str, Section], bench: Bench, peers: Peers, allow_partial: bool
) -> list[str]:
    own = for_device(peers, bench)
    texts = {name: section.block(bench, own) for name, section in sections.items()}
    empty = [name for name, text in texts.items() if not text and not sections[name].optional]
    if empty and not allow_partial:
        raise ReportError(
            f"{bench.path}: no rows for: {', '.join(empty)} (--allow-partial writes the rest)"
        )
    return [_rendered(sections[name], text or NOT_MEASURED) for name, text in texts.items()]


def _page(
    sections: dict[str, Section],
    generation: dict[str, Section],
    bench: Bench,
    peers: Peers,
    story: Story | None,
    allow_partial: bool,
) -> str:
    parts = [f"# Benchmarks: {bench.device_name}", HEADER]
    parts += _bench_sections(sections, bench, peers, allow_partial)
    for section in generation.values():
        parts.append(_rendered(section, (section.block(story) if story else "") or NOT_MEASURED))
    return "\n\n".join(parts) + "\n"


def generated_files(
    docs: Path,
    gpu: Bench,
    cpu: Bench | None,
    peers: Peers,
    stories: Stories,
    allow_partial: bool,
) -> tuple[dict[Path, str], list[str]]:
    """Every generated file with its contents, and the plots that a partial run leaves alone."""
    page = docs / "benchmarks" / f"{gpu.path.stem}.md"
    files = {
        page: _page(GPU_SECTIONS, GENERATE_SECTIONS, gpu, peers, stories.gpu, allow_partial)
    }
    if cpu:
        files[page.with_name(f"{cpu.path.stem}.md")] = _page(
            CPU_SECTIONS, GENERATE_CPU_SECTIONS, cpu, peers, stories.cpu, allow_partial
        )
    skipped = []
    for name, plot in PLOTS.items():
        try:
            files[docs / "images" / name] = plot(gpu, peers)
        except ReportError as error:
            if not allow_partial:
                raise
            skipped.append(f"{name} is left as it is: {error}")
    if stories.gpu and drawn(stories.gpu.run):
        files[docs / "images" / "generate.svg"] = generate_plot(stories.gpu.run, stories.gpu.hf)
    return files, skipped
