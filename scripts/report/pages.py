"""The generated pages, docs/benchmarks/<device>.md: what stands on them, in order."""

from collections.abc import Callable
from typing import Any, NamedTuple

from . import generation, tables
from .run import Bench, Generation, ReportError, reading
from .targets import Peers

NOT_MEASURED = "Not measured in this run."
HEADER = (
    "Written by `scripts/report.py` from the JSON beside it; not to be edited. "
    "[performance.md](../performance.md) is the summary, [bench.md](../bench.md) says how times are taken."
)


class Section(NamedTuple):
    """A heading, what the reader must know, and the tables. A run may leave an optional one out."""

    title: str
    text: str
    block: Callable[[Any, Peers], str] = lambda _run, _peers: " "
    optional: bool = False


GPU = [
    Section("The run", "![share of the large copy's bandwidth over columns](../images/share.svg)", tables.setup_table),
    Section("Targets", "", tables.targets_table),
    Section(
        "softmax",
        "`floor` is the least bytes over the bandwidth of the large copy; `share` is floor / time; `of a copy` is the "
        "time of a copy of the same bytes / time. The largest error of an element is over the size of its terms.",
        tables.softmax_table,
    ),
    Section(
        "scaled_masked_softmax",
        "The chain is ATen's: scale, mask and softmax as kernels of their own.",
        tables.masked_table,
    ),
    Section(
        "fused_logprob",
        "log p(target) of logits [rows, V]. `both` is a forward and its backward as a trainer calls them: its floor is "
        "two reads and one write. `in place` writes the gradient over the logits. ATen's two ways are log_softmax with "
        "gather, and log_softmax with nll_loss, both with the backward kernels that autograd calls. Extra MB is the "
        "peak allocation beyond inputs and result.",
        tables.logprob_table,
        optional=True,
    ),
    Section(
        "Dropout",
        "Training, p = 0.2. `linear_dropout_softmax` is of [rows, in, out] with a bias; `both` is a training step: the "
        "forward, and the gradients of input, weight and bias. ATen is native_dropout and softmax (after at::linear for "
        "the last operator). `alone` is the plugin's softmax, or at::linear with its gradients, in the same run; "
        "`on top` is our time less that. tf32 is float32 with TF32 matmuls. `inference` is without dropout, `split` that "
        "with float32 by tensor cores. Extra MB is the peak allocation beyond inputs and results, workspaces of matmuls "
        "included.",
        tables.dropout_table,
        optional=True,
    ),
    Section(
        "Other implementations",
        "`scripts/bench_peers.py` times public kernels beside ours in one run: same inputs, results checked against "
        "float64, replays interleaved. torch.compile is warmed up and tuned first; a backward is the gradient's kernels "
        "without autograd. Kernels that the script cannot run keep a time of another run, in a column of its own.",
        tables.peers_block,
    ),
    Section("Algorithms", "![each algorithm of the row engine on 1024 x 8192](../images/ladder.svg)"),
    Section(
        "Memory traffic",
        "Counted by Nsight Compute.\n\n![roofline](../images/roofline.svg)",
        tables.traffic_table,
        optional=True,
    ),
]
CPU = [
    Section("The run", "", tables.setup_table),
    Section("Targets", "", tables.targets_table),
    Section(
        "Operators",
        "With warm pages: both allocation thresholds of malloc are raised. `default malloc` is ours and ATen's (or the "
        "chain's) with malloc's defaults. The largest error of an element is over the size of its terms.",
        tables.cpu_table,
    ),
]
PICTURE = "![tokens per second of distilgpt2, batch 1](../images/generate.svg)\n\n"
GENERATION = [
    Section(
        "Generation: the run",
        "`scripts/bench_generate.sh --peers`: GPT-2 with random weights, which cost the same as trained ones, and the "
        "model that ships; then Hugging Face's GPT-2 on the same prompts. Decoding is greedy, for a fixed number of "
        "tokens.",
        generation.setup_table,
    ),
    Section("Generation: targets", "", generation.targets_table),
    Section(
        "Generation: tokens per second",
        "All sequences of a batch after their first token, over the time of the decode; in brackets the least and "
        "the most of several runs. On a GPU a step of ours is a CUDA graph unless a column says otherwise. `hf eager` and "
        "`hf sdpa` are `generate()` with its defaults; `hf static+compile` is `generate()` with a static cache, which "
        "compiles the decode; `hf compiled loop` is a loop over the compiled model without the work that `generate()` "
        "does between steps.",
        generation.speed_table,
    ),
    Section(
        "Generation: a step",
        "Variants fused and steps. The floor is the bytes of weights and cache over the read bandwidth measured in the "
        "same run; `softmax` is the share of its kernels; p50 is the host's view, which sleeps until a token is due.",
        generation.steps_table,
    ),
    Section("Generation: the prompt", "", generation.prefill_table),
    Section(
        "Generation: accuracy", "Against the baseline of the same dtype, on the same tokens.", generation.accuracy_table
    ),
]


def page(bench: Bench, run: Generation | None, peers: Peers, allow_partial: bool) -> str:
    """The page of a device."""
    parts = [f"# Benchmarks: {bench.device_name}", HEADER]
    for section in GPU if bench.on_gpu else CPU:
        with reading(bench.path):
            text = section.block(bench, peers)
        if not text and not section.optional and not allow_partial:
            raise ReportError(f"{bench.path}: no rows for: {section.title} (--allow-partial writes the rest)")
        parts += [f"## {section.title}", section.text, text.strip() if text else NOT_MEASURED]
    for section in GENERATION:
        text = ""
        if run:
            with reading(run.path):
                text = section.block(run, peers)
        picture = PICTURE if bench.on_gpu and run and section.block is generation.speed_table else ""
        parts += [f"## {section.title}", picture + section.text, text or NOT_MEASURED]
    return "\n\n".join(part for part in parts if part) + "\n"
