#!/usr/bin/env python3
"""Writes docs/benchmarks/<device>.md, the plots of docs/images, and the rows that lose in docs/performance.md from the benchmarks' JSON.

    report.py                                      docs/, from docs/benchmarks/
    report.py decode                               the tables of docs/operators/decode.md alone, from <device>-steps.json
    report.py serve                                the tables of docs/serve.md and images/serve.svg
    report.py --check                              compares all pages, changes nothing; exit code 1 if they differ
    report.py merge --folder DIR [PRESET=]FILE...  the runs of one machine as DIR/<device>[-generate].json
    report.py traffic --json FILE --host PATH      counts memory traffic with Nsight Compute

Plots need matplotlib, which scripts/setup.sh installs. Exit code 2: unusable input.
"""

import argparse
import sys
from pathlib import Path

from report import losses
from report.generation import decode_runs, decode_table
from report.merging import merge
from report.ncu import measure_traffic
from report.pages import page
from report.run import Bench, Generation, ReportError, file_name, reading, replace, write
from report.serving import block, runs
from report.targets import Peers
from report.text import with_block

ROOT = Path(__file__).resolve().parent.parent
USAGE = 2
Made = tuple[Path, str, str]  # a page, its text, and the file that gives it


def part(text: str) -> tuple[str, Path]:
    """PRESET=FILE, or FILE of a run that has no preset."""
    preset, equals, path = text.rpartition("=")
    if equals and not (preset and path):
        raise argparse.ArgumentTypeError(f"expected PRESET=FILE or FILE, got {text!r}")
    return preset, Path(path)


def parse_arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.set_defaults(run=document)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="default: %(default)s")
    parser.add_argument("--json", type=Path, help="a GPU's run; default: DOCS/benchmarks/nvidia-h200.json")
    checking = argparse.ArgumentParser(add_help=False)  # of the commands that write pages too
    checking.add_argument("--check", action="store_true", default=argparse.SUPPRESS, help="compare, write nothing")
    parser.add_argument("--check", action="store_true", help="compare all pages, or those of --json; write nothing")
    parser.add_argument("--allow-partial", action="store_true", help="take runs that were interrupted")
    commands = parser.add_subparsers()
    merging = commands.add_parser("merge", help="several runs as one file")
    merging.set_defaults(run=merge_runs)
    merging.add_argument("--folder", type=Path, required=True)
    merging.add_argument("--command", help="what to name as the command (default: those of the runs)")
    merging.add_argument("parts", type=part, nargs="+", metavar="[PRESET=]FILE")
    showing = commands.add_parser("decode", parents=[checking], help="the tables of docs/operators/decode.md")
    showing.set_defaults(run=document_decode)
    serving = commands.add_parser("serve", parents=[checking], help="what docs/serve.md says of speed")
    serving.set_defaults(run=document_server)
    counting = commands.add_parser("traffic", help="memory traffic by a profiler's counters")
    counting.set_defaults(run=lambda arguments: measure_traffic(arguments.json, arguments.host, arguments.ncu))
    counting.add_argument("--json", type=Path, required=True)
    counting.add_argument("--host", type=Path, required=True, help="the program warpfuse")
    counting.add_argument("--ncu", default="ncu")
    return parser.parse_args(words)


def load(path: Path, kind: str, allow_partial: bool) -> Bench:
    """A run on the expected kind of device."""
    bench = Bench(path, allow_partial)
    if bench.device.get("type") != kind:
        raise ReportError(f"{path}: device: type: expected {kind}, got {bench.device.get('type')}")
    return bench


def put(made: list[Made], check: bool) -> int:
    """Write what differs, or name it; 1 if something differs from what is only to be compared."""
    code = 0
    for path, text, source in made:
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if check:
            print(f"report.py: {path}: not what {source} gives; run scripts/report.py", file=sys.stderr)
            code = 1
        else:
            replace(path, text)
            print(path)
    return code


def check_all(arguments: argparse.Namespace) -> int:
    """The pages of every device, and those of the commands serve and decode that are there."""
    folder = arguments.docs / "benchmarks"
    others = [path.with_suffix(".json") for path in folder.glob("*.md") if path.stem not in ("cpu", "nvidia-h200")]
    codes = [document_device(argparse.Namespace(**vars(arguments) | {"json": path})) for path in (None, *others)]
    codes += [make(arguments) for page, make in COMMAND_PAGES.items() if (arguments.docs / page).exists()]
    return max(codes)


def document(arguments: argparse.Namespace) -> int:
    """One device's, or with --check those of all."""
    return (check_all if arguments.check and not arguments.json else document_device)(arguments)


def document_device(arguments: argparse.Namespace) -> int:
    """Pages for the GPU and the CPU, and the GPU's plots."""
    folder, partial = arguments.docs / "benchmarks", arguments.allow_partial
    gpu = load(arguments.json or folder / "nvidia-h200.json", "cuda", partial)
    benches = [gpu] + [load(path, "cpu", partial) for path in [folder / "cpu.json"] if path.exists()]
    other = gpu.path.with_name(f"{gpu.path.stem}-peers.json")
    beside = load(other, "cuda", partial) if other.exists() else None
    made: list[Made] = []
    plots = []
    for bench in benches:
        peers = Peers(folder / "peers.json", bench, beside)
        generation = bench.path.with_name(f"{bench.path.stem}-generate.json")
        run = Generation(generation, partial) if generation.exists() else None
        made.append((folder / f"{bench.path.stem}.md", page(bench, run, peers, partial), bench.path.name))
        if bench is gpu:
            plots = [arguments.docs / "images", bench, peers, run, partial]
            made += summary(arguments, bench, peers)
    code = put(made, arguments.check)
    if not arguments.check:
        with reading(gpu.path):
            plotting().write_plots(*plots)
    return code


def summary(arguments: argparse.Namespace, bench: Bench, peers: Peers) -> list[Made]:
    """performance.md with the rows that lose on this GPU; that of --json may have no place on it."""
    path = arguments.docs / "performance.md"
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    if not old or (arguments.json and losses.begin(bench) not in old):
        return []
    with reading(bench.path):
        return [(path, with_block(old, losses.block(bench, peers)), bench.path.name)]


def plotting():
    """What alone needs matplotlib; the pages are written already."""
    try:
        from report import plots
    except ImportError as error:
        raise ReportError(f"no plots: {error.name} is not installed (scripts/setup.sh does)") from error
    return plots


def document_server(arguments: argparse.Namespace) -> int:
    """The server's tables, and its plot."""
    path = arguments.docs / "serve.md"
    code = put([(path, with_block(path.read_text(encoding="utf-8"), block(arguments.docs)), "*-serve.json")], arguments.check)
    if not arguments.check:
        plots = plotting()
        plots.save(plots.serve_plot(runs(arguments.docs)[0]), arguments.docs / "images", "serve")
    return code


def document_decode(arguments: argparse.Namespace) -> int:
    """The tables of all runs, in place of those whose first column is the model."""
    sources = decode_runs(arguments.docs)
    path = arguments.docs / "operators" / "decode.md"
    text, *others = path.read_text(encoding="utf-8").split("\n| model |")
    if len(others) != len(sources):
        raise ReportError(f"{path}: expected {len(sources)} tables of models, got {len(others)}")
    for source, old in zip(sources, others, strict=True):
        with reading(source):
            text += f"\n{decode_table(Generation(source))}\n\n" + old.partition("\n\n")[2]
    return put([(path, text, "*-steps.json")], arguments.check)


COMMAND_PAGES = {"serve.md": document_server, "operators/decode.md": document_decode}


def merge_runs(arguments: argparse.Namespace) -> int:
    """Merge, and print the path of the file."""
    merged = merge(arguments.parts)
    merged["command"] = arguments.command or merged["command"]
    path = arguments.folder / file_name(merged)
    write(path, merged)
    print(path)
    return 0


def main(words: list[str] | None = None) -> int:
    """One line on stderr per failure."""
    arguments = parse_arguments(words)
    try:
        return arguments.run(arguments) or 0
    except ReportError as error:
        print(f"report.py: error: {error}", file=sys.stderr)
        return USAGE


if __name__ == "__main__":
    sys.exit(main())
