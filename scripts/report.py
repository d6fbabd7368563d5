#!/usr/bin/env python3
"""Writes docs/benchmarks/<device>.md and the plots of docs/images from the benchmarks' JSON.

    report.py                                     docs/, from docs/benchmarks/
    report.py --check                             changes nothing; exit code 1 if it would
    report.py merge --folder DIR PRESET=FILE ...  the runs of one machine as DIR/<device>.json
    report.py join --folder DIR FILE ...          the same of `warpfuse bench generate`
    report.py traffic --json FILE --host PATH     counts memory traffic with Nsight Compute

Needs nothing but Python. Exit code 2: unusable input.
"""

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from report.documents import Stories, generated_files
from report.errors import ReportError
from report.generate import Story
from report.generate_figures import load_figures
from report.generate_join import generation_name, join, write_generation
from report.generation import load_generation, load_peer_run
from report.merge import file_name, merge, write_bench
from report.model import Bench, load_bench
from report.targets import load_peers
from report.traffic import measure_traffic

ROOT = Path(__file__).resolve().parent.parent
USAGE = 2


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line."""

    def error(self, message: str) -> NoReturn:
        """Report wrong usage as every other failure is reported."""
        raise ReportError(f"{message} (see --help)")


def preset_file(text: str) -> tuple[str, Path]:
    """PRESET=FILE."""
    preset, equals, path = text.partition("=")
    if not (preset and equals and path):
        raise argparse.ArgumentTypeError(f"expected PRESET=FILE, got {text!r}")
    return preset, Path(path)


def parse_arguments(words: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.set_defaults(run=document)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="default: %(default)s")
    parser.add_argument(
        "--json", type=Path, help="a GPU's run; default: DOCS/benchmarks/nvidia-h200.json"
    )
    parser.add_argument(
        "--cpu", type=Path, help="a CPU's run; default: DOCS/benchmarks/cpu.json if it is there"
    )
    parser.add_argument("--peers", type=Path, help="default: DOCS/benchmarks/peers.json")
    parser.add_argument(
        "--peers-run",
        type=Path,
        help="peers timed beside ours; default: the GPU's run with -peers, if it is there",
    )
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument(
        "--allow-partial", action="store_true", help="take runs that were interrupted"
    )
    commands = parser.add_subparsers()
    merging = commands.add_parser("merge", help="several runs as one file")
    merging.set_defaults(run=merge_runs)
    merging.add_argument("--folder", type=Path, required=True)
    merging.add_argument(
        "--command", help="what to name as the command (default: those of the runs)"
    )
    merging.add_argument("--allow-partial", action="store_true")
    merging.add_argument("parts", type=preset_file, nargs="+", metavar="PRESET=FILE")
    joining = commands.add_parser("join", help="several runs of generation as one file")
    joining.set_defaults(run=join_runs)
    joining.add_argument("--folder", type=Path, required=True)
    joining.add_argument("--command", help="what to name as the command")
    joining.add_argument("parts", type=Path, nargs="+", metavar="FILE")
    counting = commands.add_parser("traffic", help="memory traffic by a profiler's counters")
    counting.set_defaults(run=count_traffic)
    counting.add_argument("--json", type=Path, required=True)
    counting.add_argument("--host", type=Path, required=True, help="the program warpfuse")
    counting.add_argument("--ncu", default="ncu")
    return parser.parse_args(words)


def document(arguments: argparse.Namespace) -> int:
    """Write, or compare, everything that is generated."""
    folder = arguments.docs / "benchmarks"
    gpu = load(arguments.json or folder / "nvidia-h200.json", "cuda", arguments.allow_partial)
    cpu_file = arguments.cpu or folder / "cpu.json"
    cpu = (
        load(cpu_file, "cpu", arguments.allow_partial)
        if arguments.cpu or cpu_file.exists()
        else None
    )
    run = arguments.peers_run or gpu.path.with_name(f"{gpu.path.stem}-peers.json")
    beside = (
        load(run, "cuda", arguments.allow_partial) if arguments.peers_run or run.exists() else None
    )
    peers_file = arguments.peers or folder / "peers.json"
    peers = load_peers(peers_file, beside)
    stories = Stories(
        *(load_story(path, peers_file, arguments.allow_partial) for path in (gpu.path, cpu_file))
    )
    files, skipped = generated_files(
        arguments.docs, gpu, cpu, peers, stories, arguments.allow_partial
    )
    for line in skipped:
        print(f"report.py: {line}", file=sys.stderr)
    changed = [
        path
        for path, text in files.items()
        if not path.exists() or path.read_bytes() != text.encode("utf-8")
    ]
    for path in changed:
        if arguments.check:
            print(
                f"report.py: {path}: not what {gpu.path.name} gives; run scripts/report.py",
                file=sys.stderr,
            )
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[path].encode("utf-8"))
            print(path)
    return 1 if arguments.check and changed else 0


def load(path: Path, kind: str, allow_partial: bool) -> Bench:
    """A run on the expected kind of device."""
    bench = load_bench(path, allow_partial)
    if bench.device.get("type") != kind:
        raise ReportError(f"{path}: device: type: expected {kind}, got {bench.device.get('type')}")
    return bench


def load_story(bench: Path, peers_file: Path, allow_partial: bool) -> Story | None:
    """The files with -generate and -generate-peers beside a benchmark's, None without the first."""
    path, others = (bench.with_name(f"{bench.stem}-generate{end}.json") for end in ("", "-peers"))
    if not path.exists():
        return None
    run = load_generation(path, allow_partial)
    figures = load_figures(peers_file, run.source.device)
    return Story(run, load_peer_run(others) if others.exists() else None, figures)


def merge_runs(arguments: argparse.Namespace) -> int:
    """Merge, and print the path of the file."""
    merged = merge(arguments.parts, arguments.allow_partial)
    merged["command"] = arguments.command or merged["command"]
    path = arguments.folder / file_name(merged["device"].get("name", "gpu"))
    write_bench(path, merged)
    print(path)
    return 0


def join_runs(arguments: argparse.Namespace) -> int:
    """Join, and print the path of the file."""
    joined = join(arguments.parts)
    if arguments.command:
        joined["command"] = arguments.command
    path = arguments.folder / generation_name(joined["device"])
    write_generation(path, joined)
    print(path)
    return 0


def count_traffic(arguments: argparse.Namespace) -> int:
    """Add the counters to the file."""
    measure_traffic(arguments.json, arguments.host, arguments.ncu)
    return 0


def main(words: list[str] | None = None) -> int:
    """One line on stderr for every failure."""
    try:
        arguments = parse_arguments(words)
        return arguments.run(arguments)
    except ReportError as error:
        print(f"report.py: error: {error}", file=sys.stderr)
        return USAGE


if __name__ == "__main__":
    sys.exit(main())
