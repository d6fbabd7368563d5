"""The toy bundles that the tests of the command line share: those in the folder WARPFUSE_TOY_BUNDLES, which ctest has
written once for all tests, else made once in a process. A test changes copies alone."""

import json
import os
import pathlib
import shutil

from host_program import folder, run_with_plugin


def shared():
    if path := os.environ.get("WARPFUSE_TOY_BUNDLES"):
        return pathlib.Path(path)
    import toy_bundles

    toy_bundles.write_shared(folder / "toys")
    return folder / "toys"


toys = shared()
fused, half, baseline, perturbed = (toys / name for name in ("fused", "half", "baseline", "perturbed"))
cycle, ending, undefined, module = (toys / name for name in ("cycle", "ending", "undefined", "module"))


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
