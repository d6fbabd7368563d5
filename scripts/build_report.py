"""Writes the build report (scripts/build_report.sh) of a build folder to stdout."""

import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PARTS = [  # of the objects' names, first match
    ("CUDA kernels", r"ops/.*\.cu\.o$"),
    ("CPU kernels", r"ops/CMakeFiles/warpfuse_cpu_"),
    ("operators, with libtorch", r"ops/"),
    ("host program", r"host_app/"),
    ("tests", r"tests/"),
]


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


def table(head, rows):
    print(f"\n| {' | '.join(head)} |\n|---|{'--:|' * (len(head) - 1)}")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |")


def megabytes(size):
    return f"{size / 1e6:.1f} MB"


def main(build, architectures):
    root = pathlib.Path(__file__).resolve().parent.parent
    seconds = {}
    for line in (build / "compile_times").read_text().splitlines():
        user, system, name = line.split(" ", 2)
        seconds[name] = float(user) + float(system)
    part_of = {name: next(part for part, pattern in PARTS if re.search(pattern, name))
               for name in seconds}
    commit = os.environ.get("WARPFUSE_COMMIT") or subprocess.run(
        ["git", "-C", root, "rev-parse", "--short", "HEAD"], check=True, capture_output=True,
        text=True).stdout.strip()
    print(f"""# Build report

Of commit {commit}, written by `scripts/build_report.sh`: all targets of the preset release, for
{architectures}, without ccache, on {os.cpu_count()} cores.

## CPU seconds of compiling

User and system seconds of each compile command with its children, precompiled headers included,
links not. Busy cores that share their caches make them more, so compare reports of one machine.""")
    totals = collections.Counter()
    for name, value in seconds.items():
        totals[part_of[name]] += value
    counts = collections.Counter(part_of.values())
    table(["part", "objects", "CPU s"],
          [(part, counts[part], f"{totals[part]:.0f}") for part, _ in PARTS if counts[part]]
          + [("all", len(seconds), f"{sum(totals.values()):.0f}")])
    print("\nThe slowest:")
    table(["object", "CPU s"],
          [(f"`{name.replace('CMakeFiles/', '')}`", f"{seconds[name]:.0f}")
           for name in sorted(seconds, key=seconds.get, reverse=True)[:10]])

    print("\n## Kernels\n\nCompiled kernels by folder, each architecture counted, and their machine "
          "code before compression.")
    kernels, sizes = collections.Counter(), collections.Counter()
    for name in seconds:
        if part_of[name] == "CUDA kernels":
            folder = name.split(".dir/")[1].split("/")[0]
            count, size = kernels_and_bytes(build / name)
            kernels[folder] += count
            sizes[folder] += size
    table(["folder", "kernels", "machine code"],
          [(f"`ops/{folder}`", kernels[folder], megabytes(sizes[folder])) for folder in sorted(kernels)]
          + [("all", sum(kernels.values()), megabytes(sum(sizes.values())))])

    print("\n## Sizes\n\nThe library holds its device code compressed; stripped is what "
          "`strip --strip-unneeded` leaves.")
    library = build / "lib/libwarpfuse.so"
    with tempfile.NamedTemporaryFile() as stripped:
        subprocess.run(["strip", "--strip-unneeded", "-o", stripped.name, library], check=True)
        table(["file", "size"],
              [("libwarpfuse.so", megabytes(library.stat().st_size)),
               ("libwarpfuse.so, stripped", megabytes(os.path.getsize(stripped.name))),
               ("bin/warpfuse", megabytes((build / "bin/warpfuse").stat().st_size))])


main(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2])
