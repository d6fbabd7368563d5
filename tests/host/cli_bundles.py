"""The toy bundles that the tests of the command line share, made once in a process."""

import json
import pathlib
import shutil

import torch

import toy_bundles
from host_program import PLUGIN, folder, run_with_plugin

CYCLE = "é€𝄞".encode() + b"\xff "

torch.ops.load_library(PLUGIN)

fused = toy_bundles.write_toy(folder / "fused", "fused", routed=(True, True))
half = toy_bundles.write_toy(folder / "half", "half", routed=(True, False))
baseline = toy_bundles.write_toy(folder / "baseline", "baseline", routed=(False, False))
perturbed = toy_bundles.write_perturbed(folder / "perturbed", routed=(False, False))
cycle = toy_bundles.write_cycle(folder / "cycle", CYCLE)
ending = toy_bundles.write_cycle(folder / "ending", [*b"ab", toy_bundles.END_OF_TEXT])
undefined = toy_bundles.write_cycle(folder / "gives-nan", [*b"ab", toy_bundles.END_OF_TEXT], undefined=ord("b"))


def copy_of(bundle, name, **fields):
    """A copy whose description has these fields too."""
    copy = pathlib.Path(shutil.copytree(bundle, folder / name))
    if fields:
        edit_description(copy, **fields)
    return copy


def edit_description(bundle, **fields):
    file = bundle / "bundle.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def write(name, data):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def generate(bundle, *arguments, **options):
    return run_with_plugin("generate", "-m", bundle, "-p", "Hello", "-n", "24", *arguments, **options)
