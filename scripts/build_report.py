"""Writes one part of docs/build_report.md from what scripts/build_report.sh measured.

usage: build_report.py cpu|gpu FOLDER REPORT
"""

import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TITLE = "# Build report\n\nWritten by `scripts/build_report.sh`; not edited by hand.\n"
HEADS = {"cpu": "## Without a GPU", "gpu": "## On a machine with a GPU"}
PARTS = [  # of the objects' names, first match
    ("CUDA kernels", r"\.cu\.o$"),
    ("CPU kernels", r"ops/CMakeFiles/warpfuse_cpu_"),
    ("operators, with libtorch", r"ops/"),
]


def table(head, rows):
    lines = [f"| {' | '.join(head)} |", f"|---|{'--:|' * (len(head) - 1)}"]
    return "\n".join(lines + [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]) + "\n"


def cuobjdump():
    try:
        import triton  # torch's own, which brings one along

        beside = pathlib.Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    except ImportError:
        beside = pathlib.Path()
    found = shutil.which("cuobjdump") or (beside.is_file() and str(beside))
    return found or sys.exit("build_report.py: no cuobjdump in PATH")


def kernels_and_bytes(object_file):
    """How many kernels the machine code of an object has, and its bytes, uncompressed."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([cuobjdump(), "-xelf", "all", object_file], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL)
        cubins = list(pathlib.Path(folder).iterdir())
        sections = [subprocess.run(["readelf", "-SW", cubin], check=True, capture_output=True,
                                   text=True).stdout for cubin in cubins]
        return (sum(len(re.findall(r" \.text\.", text)) for text in sections),
                sum(cubin.stat().st_size for cubin in cubins))


def megabytes(size):
    return f"{size / 1e6:.1f} MB"


def seconds_of(folder):
    rows = [line.split(" ", 2) for line in (folder / "seconds").read_text().splitlines()]
    return [(name, f"{float(cpu):.0f}", f"{float(wall):.0f}") for wall, cpu, name in rows]


def compile_times(build):
    seconds = {}
    for line in (build.parent / "compile_times").read_text().splitlines():
        user, system, name = line.split(" ", 2)
        seconds[name] = float(user) + float(system)
    part_of = {name: next(part for part, pattern in PARTS if re.search(pattern, name)) for name in seconds}
    totals, counts = collections.Counter(), collections.Counter(part_of.values())
    for name, value in seconds.items():
        totals[part_of[name]] += value
    yield ("\nCompiling the library, user and system seconds of each compile command with its children; links "
           "are left out:\n\n")
    yield table(["part", "objects", "CPU s"],
                [(part, counts[part], f"{totals[part]:.0f}") for part, _ in PARTS]
                + [("all", len(seconds), f"{sum(totals.values()):.0f}")])
    yield "\nThe slowest objects:\n\n"
    yield table(["object", "CPU s"],
                [(f"`{name.replace('CMakeFiles/', '')}`", f"{seconds[name]:.0f}")
                 for name in sorted(seconds, key=seconds.get, reverse=True)[:10]])

    kernels, sizes = collections.Counter(), collections.Counter()
    for name in seconds:
        if part_of[name] == "CUDA kernels":
            folder = name.split(".dir/")[1].split("/")[0]
            count, size = kernels_and_bytes(build / name)
            kernels[folder] += count
            sizes[folder] += size
    yield "\nKernels, and their machine code before compression:\n\n"
    yield table(["folder", "kernels", "machine code"],
                [(f"`ops/{folder}`", kernels[folder], megabytes(sizes[folder])) for folder in sorted(kernels)]
                + [("all", sum(kernels.values()), megabytes(sum(sizes.values())))])


def stripped_size(library):
    with tempfile.NamedTemporaryFile() as stripped:
        subprocess.run(["strip", "--strip-unneeded", "-o", stripped.name, library], check=True)
        return os.path.getsize(stripped.name)


def lines_by_folder():
    files = subprocess.run(["git", "-C", ROOT, "ls-files"], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    for folder in ("ops", "host_app", "tests", "traced_models", "scripts"):
        own = [ROOT / name for name in files
               if name.startswith(folder + "/") and not name.endswith((".safetensors", ".json", ".txt", ".pt"))]
        yield folder, len(own), sum(path.read_bytes().count(b"\n") for path in own)


def without_gpu(folder):
    build = folder / "cuda"
    yield (f"\n{os.cpu_count()} cores, a fresh clone, ccache off, after `scripts/setup.sh`; the library is for "
           "9.0a. Busy cores that share their caches make seconds more, so compare reports of one machine.\n\n")
    yield table(["command", "CPU s", "s"], seconds_of(folder))
    yield from compile_times(build)
    library = build / "lib/libwarpfuse.so"
    yield "\n" + table(["file", "size"], [
        ("libwarpfuse.so", megabytes(library.stat().st_size)),
        ("libwarpfuse.so, stripped", megabytes(stripped_size(library)))])
    yield "\n" + table(["folder", "files", "lines"], lines_by_folder())


def with_gpu(folder):
    gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], check=True,
                         capture_output=True, text=True).stdout.splitlines()[0]
    yield f"\n{gpu}, {os.cpu_count()} cores.\n\n"
    yield table(["command", "CPU s", "s"], seconds_of(folder))
    yield "\nThe host's part of a call on a GPU without a graph, beside ATen's (`warpfuse bench overhead`):\n"
    rows = json.loads((folder / "overhead.json").read_text())["rows"]
    yield table(["operator", "mode", "us/call", "ATen's", "ratio"],
                [(row["operator"], row["mode"], f"{row['warpfuse']['p50_us']:.2f}",
                  f"{row['aten']['p50_us']:.2f}", f"{row['ratio']:.2f}") for row in rows])
    times = [line.split() for line in (folder / "first_kernel").read_text().splitlines()]
    load, first = zip(*times)
    yield ("\nMilliseconds to load the library and from then to the end of its first kernel, in "
           f"{len(times)} processes: {', '.join(load)}; {', '.join(first)}.\n")


def main(part, folder, report):
    commit = os.environ.get("WARPFUSE_COMMIT") or subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], check=True, capture_output=True,
        text=True).stdout.strip()
    body = f"\n{HEADS[part]}\n\nCommit {commit}." + "".join((without_gpu if part == "cpu" else with_gpu)(folder))
    old = report.read_text() if report.exists() else ""
    bodies = {name: text for name, text in
              ((name, old.partition(f"\n{head}\n")[2].partition("\n## ")[0]) for name, head in HEADS.items()) if text}
    kept = {name: f"\n{HEADS[name]}\n{text.rstrip()}\n" for name, text in bodies.items()} | {part: body}
    report.write_text(TITLE + "".join(kept[name] for name in HEADS if name in kept))


main(sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]))
