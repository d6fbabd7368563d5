#!/usr/bin/env python3
"""Writes traced bundles that the warpfuse host runs.

SOURCE is a local Hugging Face GPT-2 folder, a hub name, config:NAME with random weights
(gpt2, distilgpt2, tiny, or a path to a config.json), or a module that is no language model:
module:softmax, module:deformable-detr or module:linear-dropout-softmax, the last also in training,
where it draws random numbers. Bundles are written to DIR/<variant>-<dtype>/.

    export.py traced_models/wikitext-small -o bundles/wikitext-small --plugin libwarpfuse.so
    export.py config:gpt2 -o bundles/gpt2-random --variants baseline,sdpa --dtype float16
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import deformable_detr_module
import linear_dropout_softmax_module
import softmax_module
import torch
from attention import VARIANTS
from bundle import describe, write_bundle
from errors import ExportError, ModelError, PluginError, UsageError
from gpt2 import GPT2
from gpt2_config import GPT2Config
from sources import Source, open_source
from state_dict import load_weights
from tokenizer_files import check_vocabulary
from tracing import (
    check_gpt2,
    deserialize,
    foreign_operators,
    require_close,
    serialize,
    trace,
    trace_gpt2,
)

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
MODULES = {
    "softmax": softmax_module,
    "linear-dropout-softmax": linear_dropout_softmax_module,
    "deformable-detr": deformable_detr_module,
}
SIZES = ("in_features", "out_features")
GPT2_OPERATORS = {
    "fused": ("softmax", "scaled_masked_softmax"),
    "steps": (
        "norm_linear",
        "linear_residual",
        "cached_attention_softmax",
        "linear_argmax",
        "gpt2_step",
    ),
}
RECOMMENDATION = (
    "export.py: steps is the variant to serve: the fastest to decode (docs/operators/decode.md)"
)


def positive(text: str) -> int:
    """The number of an option."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return int(text)


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line."""

    def error(self, message: str) -> None:
        """Report wrong usage as every other failure is reported."""
        raise UsageError(f"{message} (see --help)")


def load_plugin(path: Path | None, needed: dict[str, Sequence[str]]) -> None:
    """Load the operator library; `needed` are the operators that each variant calls."""
    if path is not None:
        if not path.is_file():
            raise PluginError(f"{path}: no such operator library")
        try:
            torch.ops.load_library(str(path.resolve()))
        except OSError as error:
            raise PluginError(f"{path}: cannot load: {str(error).splitlines()[0]}") from error
    for variant, names in needed.items():
        for name in names:
            if not hasattr(torch.ops.warpfuse, name):
                reason = f"{path} does not have" if path else "only a plugin (--plugin) has"
                raise PluginError(f"the {variant} variant needs warpfuse::{name}, which {reason}")


def build_gpt2(source: Source, variant: str, dtype: torch.dtype, seed: int) -> GPT2:
    """The eager module of a variant, with the source's weights or random ones."""
    torch.manual_seed(seed)
    model = GPT2(GPT2Config.from_dict(source.config), variant)
    if source.tensors is not None:
        load_weights(model, source.tensors, source.name)
    return model.eval().requires_grad_(False).to(dtype)


def export_gpt2(source: Source, variant: str, dtype: str, seed: int, folder: Path) -> None:
    """Trace, save, load again, compare with the eager module, and write one bundle."""
    model = build_gpt2(source, variant, DTYPES[dtype], seed)
    config = model.config
    check_vocabulary(source.tokenizer, config.vocab_size)
    data = serialize(trace_gpt2(model))
    loaded = deserialize(data)
    check_gpt2(model, loaded)
    stored = sum(p.numel() * p.element_size() for p in model.parameters())
    if len(data) > 1.05 * stored + (1 << 20):
        raise ModelError(f"model.pt has {len(data)} bytes for {stored} bytes of parameters")
    details = {
        "context": config.context,
        "layers": config.layers,
        "heads": config.heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "softmax_calls_per_step": config.layers,
        "methods": list(model.methods()),
    }
    if source.end_tokens is not None:
        details["end_tokens"] = source.end_tokens
    operators = foreign_operators(loaded, model.methods())
    description = describe(source.name, "causal_lm", variant, dtype, operators, details)
    files = {"config.json": (json.dumps(source.config, indent=2) + "\n").encode()}
    write_bundle(folder, data, description, files | source.tokenizer)


def export_module(
    kind: ModuleType,
    sizes: dict[str, int],
    name: str,
    variant: str,
    dtype: str,
    seed: int,
    folder: Path,
) -> None:
    """The same for a module that is no language model."""
    torch.manual_seed(seed)
    module = kind.Module(variant, **sizes).eval().requires_grad_(False).to(DTYPES[dtype])
    inputs = [{**entry, "dtype": dtype} for entry in module.inputs]
    example = tuple(torch.randn(entry["shape"]).to(DTYPES[dtype]) for entry in inputs)
    data = serialize(trace(module, {"forward": example}))
    loaded = deserialize(data)
    for rows in (1, 8, 33):
        x = torch.randn(rows, *inputs[0]["shape"][1:]).to(DTYPES[dtype])
        results = []
        for each in (loaded, module):
            torch.manual_seed(seed)  # of what the module may draw
            results.append(each(x))
        require_close(*results, f"module at {rows} rows")
    details = {"inputs": inputs, "softmax_calls_per_step": kind.SOFTMAX_CALLS}
    operators = foreign_operators(loaded, ("forward",))
    write_bundle(
        folder, data, describe(name, "module", variant, dtype, operators, details), files={}
    )


def comma_list(text: str, known: list[str], what: str) -> list[str]:
    """The entries of a comma-separated option; an unknown one is a UsageError."""
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    for entry in entries:
        if entry not in known:
            raise UsageError(f"unknown {what} {entry!r}; known: {', '.join(known)}")
    if not entries:
        raise UsageError(f"no {what} given; known: {', '.join(known)}")
    return entries


def run(arguments: argparse.Namespace) -> None:
    """Export every variant and dtype that was asked for."""
    kind = None
    if arguments.source.startswith("module:"):
        kind = MODULES.get(arguments.source.removeprefix("module:"))
        if kind is None:
            sources = ", ".join(f"module:{name}" for name in MODULES)
            raise UsageError(f"unknown module {arguments.source!r}; known: {sources}")
    sizes = {name: getattr(arguments, name) for name in SIZES if getattr(arguments, name)}
    if sizes and kind is not linear_dropout_softmax_module:
        raise UsageError(f"{arguments.source} has no --in-features and --out-features")
    operators = GPT2_OPERATORS if kind is None else kind.OPERATORS
    known = list(VARIANTS) if kind is None else list(operators)
    variants = comma_list(arguments.variants or ",".join(known), known, "variant")
    dtypes = comma_list(arguments.dtype, list(DTYPES), "dtype")
    load_plugin(arguments.plugin, {name: operators.get(name, ()) for name in variants})
    if kind is not None:
        name = arguments.name or arguments.source.removeprefix("module:") + "-module"
    else:
        source = open_source(arguments.source, arguments.tokenizer)
        source.name = arguments.name or source.name
    for dtype in dtypes:
        for variant in variants:
            folder = arguments.out / f"{variant}-{dtype}"
            if kind is not None:
                export_module(kind, sizes, name, variant, dtype, arguments.seed, folder)
            else:
                export_gpt2(source, variant, dtype, arguments.seed, folder)
            print(folder)
    if kind is None and "steps" in variants:
        print(RECOMMENDATION, file=sys.stderr)


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--variants", help=f"{','.join(VARIANTS)} (default: all there are)")
    parser.add_argument("--dtype", default="float32", help="float32,float16,bfloat16")
    parser.add_argument("--plugin", type=Path, help="libwarpfuse.so, for the variants fused and steps")
    for size in SIZES:
        parser.add_argument(
            f"--{size.replace('_', '-')}",
            type=positive,
            metavar="N",
            help="of module:linear-dropout-softmax (default: 1024)",
        )
    parser.add_argument("--name", help="the model's name in bundle.json (default: from SOURCE)")
    parser.add_argument("--tokenizer", type=Path, metavar="DIR", help="take the tokenizer from DIR")
    parser.add_argument("--seed", type=int, default=0, help="seed of random weights")
    try:
        run(parser.parse_args(argv))
    except ExportError as error:
        print(f"export.py: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
