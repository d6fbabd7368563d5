"""The files that are generated whole or in part: blocks of performance.md, and the plots."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

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
from .kernels import launch_table, seed_table, traffic_table
from .logprob import logprob_table
from .model import Bench
from .peers_table import peers_text
from .plots import PLOTS
from .tables import (
    cpu_table,
    masked_table,
    setup_table,
    softmax_table,
    targets_summary,
)
from .targets import Peers, for_device

DOCUMENT = "performance.md"
NOT_MEASURED = "Not measured in this run."
MARKER = re.compile(r"<!-- (begin|end) generated: ([a-z-]+) -->")
BLOCK = re.compile(
    r"(<!-- begin generated: ([a-z-]+) -->).*?(<!-- end generated: \2 -->)", re.DOTALL
)

Block = Callable[[Bench, Peers], str]
GPU_BLOCKS: dict[str, Block] = {
    "gpu-setup": setup_table,
    "gpu-figures": targets_summary,
    "softmax": softmax_table,
    "masked": masked_table,
    "logprob": logprob_table,
    "dropout": dropout_table,
    "peers": peers_text,
    "seed": seed_table,
    "traffic": traffic_table,
    "launches": launch_table,
}
# Of a preset of their own, which a run may leave out.
OPTIONAL = ("logprob", "dropout")
CPU_BLOCKS: dict[str, Block] = {
    "cpu-setup": setup_table,
    "cpu-figures": targets_summary,
    "cpu": cpu_table,
}
# Of runs of their own, for which a device may have no file.
GENERATE_BLOCKS: dict[str, Callable[[Story], str]] = {
    "generate-setup": setup_block,
    "generate-figures": figures_block,
    "generate": speed_block,
    "generate-steps": steps_block,
    "generate-prefill": prefill_block,
    "generate-accuracy": accuracy_block,
}
GENERATE_CPU_BLOCKS: dict[str, Callable[[Story], str]] = {"generate-cpu": cpu_block}
NAMES = (*GPU_BLOCKS, *CPU_BLOCKS, *GENERATE_BLOCKS, *GENERATE_CPU_BLOCKS)


@dataclass(frozen=True)
class Stories:
    """Generation on both devices, where it was measured."""

    gpu: Story | None
    cpu: Story | None


def texts_of(
    blocks: dict[str, Block], bench: Bench, peers: Peers, allow_partial: bool
) -> dict[str, str]:
    """The text of each block; one without rows means that its preset was left out of the run."""
    own = for_device(peers, bench)
    texts = {name: block(bench, own) for name, block in blocks.items()}
    empty = [name for name, text in texts.items() if not text and name not in OPTIONAL]
    if empty and not allow_partial:
        raise ReportError(
            f"{bench.path}: no rows for: {', '.join(empty)} (--allow-partial writes the rest)"
        )
    return {name: text or NOT_MEASURED for name, text in texts.items()}


def fill(document: str, texts: dict[str, str], where: Path) -> str:
    """The document with the blocks between markers replaced; each must be there once."""
    names = [match[2] for match in BLOCK.finditer(document)]
    pairs = [(kind, name) for name in names for kind in ("begin", "end")]
    for found, expected in zip_longest(MARKER.findall(document), pairs):
        if found != expected:
            kind, name = found or expected
            raise ReportError(
                f"{where}: the {kind} marker of {name} has no partner, or holds another block"
            )
    for name in names:
        if names.count(name) > 1:
            raise ReportError(f"{where}: the block {name} is there twice")
        if name not in NAMES:
            raise ReportError(f"{where}: there is no generated block {name}")
    for name in texts:
        if name not in names:
            raise ReportError(
                f"{where}: no place for the block {name}: "
                f"<!-- begin generated: {name} --> and <!-- end generated: {name} -->"
            )

    def replaced(match: re.Match[str]) -> str:
        if match[2] not in texts:  # the other device's, whose file was not given
            return match[0]
        return f"{match[1]}\n\n{texts[match[2]]}\n\n{match[3]}"

    return BLOCK.sub(replaced, document)


def generate_texts(stories: Stories) -> dict[str, str]:
    """The text of each block about generation."""
    return {
        name: (block(story) if story else "") or NOT_MEASURED
        for blocks, story in ((GENERATE_BLOCKS, stories.gpu), (GENERATE_CPU_BLOCKS, stories.cpu))
        for name, block in blocks.items()
    }


def generated_files(
    docs: Path,
    gpu: Bench,
    cpu: Bench | None,
    peers: Peers,
    stories: Stories,
    allow_partial: bool,
) -> tuple[dict[Path, str], list[str]]:
    """Every generated file with its contents, and the plots that a partial run leaves alone."""
    texts = generate_texts(stories)
    for blocks, bench in ((GPU_BLOCKS, gpu), (CPU_BLOCKS, cpu)):
        if bench:
            texts |= texts_of(blocks, bench, peers, allow_partial)
    path = docs / DOCUMENT
    files = {path: fill(read_text(path), texts, path)}
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


def read_text(path: Path) -> str:
    """A file's text; a ReportError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from error
