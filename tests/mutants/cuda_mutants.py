#!/usr/bin/env python3
"""Changes one place of the CUDA code at a time, and says whether the cases of its folder notice on a GPU.

    cuda_mutants.py pack FILE.tar.xz   builds those of cuda_mutants.json that survived or have no outcome; no such
                                       file: 8 that a seed draws. Without a GPU, in a clean checkout (a clone: sources
                                       are changed and put back) whose build/release has warpfuse_tests
    cuda_mutants.py run FILE.tar.xz    on a GPU: writes outcomes to cuda_mutants.json beside this script, or to --output

A mutant is compiled where it changes at most 8 kernel files; others are passed over. Exit code 1: a mutant survives.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mutants import ROOT, SEED, changed, draw, find, run, write

COUNT, MOST_FILES, SECONDS = 8, 8, 60
RESULTS = Path(__file__).with_name("cuda_mutants.json")
BUILD = ROOT / "build" / "release"
LIBRARY = BUILD / "lib" / "libwarpfuse.so"

# Folders of tests per folder of ops/: the same name, but for these; the files likeliest to notice come first.
FOLDERS = {
    "rowwise": ("row_engine", "softmax", "attention"),
    "softmax": ("softmax", "row_engine"),
    "scaled_masked_softmax": ("attention", "row_engine"),
    "fused_logprob": ("logprob",),
    "sample_tokens": ("sampling",),
    "dropout_softmax": ("dropout",),
    "linear_dropout_softmax": ("dropout",),
    "cached_attention_softmax": ("cached_attention",),
}


def test_files(mutant: dict) -> list[str]:
    folder = Path(mutant["file"]).parts[1]
    files = [file for name in FOLDERS.get(folder, (folder,)) for file in sorted((ROOT / "tests" / name).glob("test_*.cpp"))]
    return [file.stem for file in files if "_TEST(" in file.read_text(encoding="utf-8") or "cuda" in file.stem]


def kernel_files(name: str) -> int:
    """How many kernel files include it, by what ninja knows of the last build."""
    objects = run("ninja", "-C", BUILD, "-t", "deps").stdout.split("\n\n")
    return sum(name in each and ".cu.o: " in each and "warpfuse.dir" in each for each in objects)


def build_mutant(mutant: dict, copy: Path) -> bool:
    """Whether it builds in reasonable time; its library is then at the path."""
    if not find(mutant) or kernel_files(mutant["file"]) > MOST_FILES:
        return False
    with changed(mutant):
        if run("cmake", "--build", BUILD, "--target", "warpfuse").returncode:
            return False
        return not run("strip", "-o", copy, LIBRARY).returncode


def recorded() -> list[dict]:
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []


def mutants_to_build() -> list[dict]:
    if not RESULTS.exists():
        return draw(r"^ops/(?!.*/lab/).*\.cuh?$", 4 * COUNT, SEED)
    open_ones = [mutant for mutant in recorded() if mutant.get("outcome", "survived") == "survived"]
    return [{key: mutant[key] for key in ("file", "line", "from", "to")} for mutant in open_ones]


def pack(archive: Path) -> None:
    if run("git", "-C", ROOT, "status", "--porcelain").stdout:
        sys.exit("cuda_mutants.py: this checkout has changes, which it might overwrite")
    built: list[dict] = []
    with tempfile.TemporaryDirectory() as folder:
        for mutant in mutants_to_build():
            if len(built) < COUNT and build_mutant(mutant, Path(folder) / f"mutant{len(built)}.so"):
                built.append(mutant)
                print(f"{mutant['file']}:{mutant['line']}", file=sys.stderr)
        if run("cmake", "--build", BUILD, "--target", "warpfuse").returncode:
            sys.exit("cuda_mutants.py: the unchanged sources do not build")
        for file in (BUILD / "bin" / "warpfuse_tests", BUILD / "lib" / "libwarpfuse_lab.so", LIBRARY):
            run("strip", "-o", Path(folder) / file.name, file)
        (Path(folder) / "mutants.json").write_text(json.dumps(built), encoding="utf-8")
        # Nine libraries that differ in a few places: a window that holds them all.
        subprocess.run(f"tar cf - --sort=name . | xz -T1 --lzma2=preset=1,dict=192MiB > '{archive.resolve()}'", shell=True, cwd=folder, check=True)


def environment(folder: Path, number: int | None) -> dict:
    """A mutant's library lies in a folder of its own, by the library's name."""
    own = folder / f"own{number}"
    own.mkdir(exist_ok=True)
    name = LIBRARY.name if number is None else f"mutant{number}.so"
    (own / LIBRARY.name).symlink_to(folder / name)
    (own / "libwarpfuse_lab.so").symlink_to(folder / "libwarpfuse_lab.so")
    torch = Path(importlib.util.find_spec("torch").submodule_search_locations[0])
    folders = [own, torch / "lib", *torch.parent.glob("nvidia/*/lib")]
    return os.environ | {"LD_LIBRARY_PATH": ":".join(map(str, folders)), "OMP_NUM_THREADS": "1"}


def run_file(mutant: dict, file: str, program: Path, surroundings: dict) -> None:
    """Adds what the cases of one file say, unless another file's have killed the mutant."""
    if mutant["outcome"] != "survived":
        return
    start = time.monotonic()
    command = [program, "--filenames-as-tags", "--abort", f"[#{file}][gpu]~[huge]~[two-gpus]"]
    try:
        ended = subprocess.run(command, env=surroundings, capture_output=True, timeout=SECONDS, check=False).returncode
    except subprocess.TimeoutExpired:
        mutant["too slow"] = [*mutant.get("too slow", []), file]
        return
    if ended not in (0, 2, 77):  # 2: none of these cases
        mutant["outcome"] = f"killed by {file}"
        mutant["seconds"] = round(time.monotonic() - start, 1)
    elif ended == 0:
        mutant["passed"] = [*mutant.get("passed", []), file]


def test(archive: Path, output: Path) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with tarfile.open(archive) as packed:
            packed.extractall(folder)  # noqa: S202 what pack() wrote
        mutants = json.loads((folder / "mutants.json").read_text(encoding="utf-8"))
        program = folder / "warpfuse_tests"
        unchanged = {"outcome": "survived", "file": "ops/rowwise/cuda/none"}
        run_file(unchanged, "test_softmax_values", program, environment(folder, None))
        if not unchanged.get("passed"):
            sys.exit(f"cuda_mutants.py: the unchanged library does not run here: {unchanged}")
        runs = []
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for number, mutant in enumerate(mutants):
                mutant["outcome"] = "survived"
                surroundings = environment(folder, number)
                runs += [pool.submit(run_file, mutant, file, program, surroundings) for file in test_files(mutant)]
        for each in runs:
            each.result()  # raises what the run has: its mutant would count as one that survives
    for mutant in mutants:
        print(f"{mutant['file']}:{mutant['line']}: {mutant['outcome']} {mutant.get('too slow', '')}")
    rerun = {(mutant["file"], mutant["from"], mutant["to"]): mutant for mutant in mutants}
    kept = [rerun.pop((mutant["file"], mutant["from"], mutant["to"]), mutant) for mutant in recorded()]
    write(output, [*kept, *rerun.values()])
    return any(mutant["outcome"] == "survived" for mutant in mutants)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("pack", "run"))
    parser.add_argument("archive", type=Path)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.verb == "run":
        return test(arguments.archive, arguments.output)
    pack(arguments.archive)
    return 0


if __name__ == "__main__":
    sys.exit(main())
