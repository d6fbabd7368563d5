#!/usr/bin/env python3
"""Changes one place of the CPU code at a time, and says whether the tests of its folder notice.

    mutants.py --build build/cpu-only   those of mutants.json without an outcome; no such file: draws them, by seed
    mutants.py --list                   only shows them
    mutants.py --only 3,17              these again
    mutants.py --again                  all that were killed again, by the tests as they are now

Changes the sources of its own checkout, which must be clean, and puts them back: work in a clone. May be
interrupted, and goes on where it was. Exit code 1: a mutant survives that is not marked as equivalent in
mutants.json, by hand and with a reason.
"""

import argparse
import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("mutants.json")
COUNT, SEED, TIMEOUT = 40, 20, 300
NOT_COMPILED, GONE = "does not compile", "is no longer there"

# The ctest entries of a folder; the first that fits.
SUITES = (
    (r"ops/softmax/", r"^ops\.(softmax|row_engine)"),
    (r"ops/(scaled_masked_softmax|attention_mask)/", r"^ops\.(attention|masked)"),
    (r"ops/fused_logprob/", r"^ops\.logprob"),
    (r"ops/sample_tokens/", r"^ops\.sampl"),
    (r"ops/(dropout_softmax|linear_dropout_softmax)/", r"^ops\.(dropout|masked_dropout|python_dropout)"),
    (r"ops/ms_deform_attn/", r"^ops\.ms_deform_attn"),
    (r"ops/cached_attention_softmax/", r"^ops\.cached_attention"),
    (r"ops/skinny_linear/", r"^ops\.skinny_linear"),
    (r"ops/gpt2_step/", r"^ops\.gpt2_step"),
    (r"ops/rowwise/", r"^ops\.(row_engine|softmax|attention)"),
    (r"ops/batching/", r"^ops\.python_transforms"),
    (r"ops/", r"^ops\."),
    (r"rewrite/", r"^(ops\.rewrite|rewrite\.)"),
    (r"host_app/(serve/|commands/serve)", r"^host\.(units|serve_?[^e]*$)"),
    (r"host_app/(bench/|commands/bench)", r"^host\.(units|cli_bench)"),
    (r"host_app/commands/selftest", r"^host\.cli_selftest"),
    (r"host_app/", r"^host\.(units|cli_[^bs]|generate|bundles)"),
)
# A pattern and what takes its place.
CHANGES = (
    (r"(?<=\s)<=(?=\s)", "<"),
    (r"(?<=\s)>=(?=\s)", ">"),
    (r"(?<=\s)<(?=\s)", "<="),
    (r"(?<=\s)>(?=\s)", ">="),
    (r"(?<=\s)==(?=\s)", "!="),
    (r"(?<=\s)!=(?=\s)", "=="),
    (r"(?<=\s)&&(?=\s)", "||"),
    (r"(?<=\s)\|\|(?=\s)", "&&"),
    (r"(?<=\w )\+(?= \w)", "-"),
    (r"(?<=\w )-(?= \w)", "+"),
    (r"(?<=[\s(])0(?=[;,)])", "1"),
    (r"(?<=[\s(])1(?=[;,)])", "2"),
    (r"^\s+[a-z_]\w*(\.|->|\()[^=]*\);$", ""),  # a call whose result nobody takes
)
CPU_FILES = r"^(?!.*(cuda|hopper|\.cuh?$|/lab/)).*\.(cpp|h)$"
TARGETS = ("warpfuse", "warpfuse_tests", "warpfuse_host", "warpfuse_host_tests")
# Not a place that a test of behaviour could see: errors' texts, includes, types.
LEFT_OUT = re.compile(r"^\s*(//|#|/?\*|namespace|using|template|static_assert)|CHECK\(|fail\(|operator|requires|<<|prefetch|\.reserve\(|return [a-z_]+;$")


def draw(pattern: str, count: int, seed: int) -> list[dict]:
    """Places of the files that match the pattern, in a random order that the seed fixes."""
    listed = run("git", "-C", ROOT, "ls-files", "ops", "host_app", "rewrite")
    places = []
    for name in filter(re.compile(pattern).search, listed.stdout.split()):
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            if not LEFT_OUT.search(line):
                for change, (what, by) in enumerate(CHANGES):
                    places += [(name, number, line, change, found.span()) for found in re.finditer(what, line)]
    chosen = random.Random(seed).sample(places, count)
    return [
        {"file": name, "line": number, "from": line, "to": line[: span[0]] + CHANGES[change][1] + line[span[1] :]}
        for name, number, line, change, span in chosen
    ]


def run(*command: object) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


def find(mutant: dict) -> bool:
    """Whether the mutant's line is still there; it may have moved: the nearest such line."""
    path = ROOT / mutant["file"]
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    places = [number for number, line in enumerate(lines, 1) if line == mutant["from"]]
    mutant["line"] = min(places, key=lambda number: abs(number - mutant["line"]), default=mutant["line"])
    return bool(places)


@contextmanager
def changed(mutant: dict) -> Iterator[None]:
    """The mutant is in the sources meanwhile."""
    path = ROOT / mutant["file"]
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    lines[mutant["line"] - 1] = mutant["to"]
    try:
        path.write_text("\n".join(lines), encoding="utf-8")
        yield
    finally:
        path.write_text(text, encoding="utf-8")


def outcome(mutant: dict, build: Path) -> str:
    """killed by which entry, survived, or why it could not be tried."""
    if not find(mutant):
        return GONE
    with changed(mutant):
        if run("cmake", "--build", build, "--target", *TARGETS).returncode:
            return NOT_COMPILED
        suite = next(entries for pattern, entries in SUITES if re.match(pattern, mutant["file"]))
        for which in ("-L", "-LE"):  # the quick ones first
            tested = run("ctest", "--test-dir", build, "-R", suite, which, "smoke", "-j2", "--stop-on-failure", "--timeout", TIMEOUT)
            if tested.returncode:
                failed = re.search(r"Test +#\d+: (\S+) .*\*\*\*(?!Skipped)", tested.stdout)
                return f"killed by {failed[1] if failed else 'ctest'}"
        return "survived"


def write(path: Path, mutants: list[dict]) -> None:
    """A line for each, where its line of the sources is now."""
    for mutant in mutants:
        find(mutant)
    lines = ",\n".join(json.dumps(mutant, ensure_ascii=False) for mutant in mutants)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "cpu-only")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", help="numbers, separated by commas")
    parser.add_argument("--again", action="store_true")
    arguments = parser.parse_args()
    if not RESULTS.exists():
        write(RESULTS, draw(CPU_FILES, 2 * COUNT, SEED))  # more than are asked for, since some do not compile
    mutants = json.loads(RESULTS.read_text(encoding="utf-8"))
    asked = {int(number) for number in arguments.only.split(",")} if arguments.only else set()
    if arguments.list:
        for number, mutant in enumerate(mutants, 1):
            print(f"{number} {mutant['file']}:{mutant['line']} {mutant.get('outcome', '')}\n-{mutant['from']}\n+{mutant['to']}")
        return 0
    if any(RESULTS.name not in line for line in run("git", "-C", ROOT, "status", "--porcelain").stdout.splitlines()):
        sys.exit("mutants.py: this checkout has changes, which it might overwrite")
    if run("cmake", "--build", arguments.build, "--target", *TARGETS).returncode:
        sys.exit("mutants.py: the unchanged sources do not build")
    compiled = []
    for number, mutant in enumerate(mutants, 1):
        full, before = len(compiled) == COUNT, mutant.get("outcome", "")
        if number in asked or not full and (not before or arguments.again and before.startswith("killed")):
            mutant["outcome"] = outcome(mutant, arguments.build)
            print(f"{number} {mutant['file']}:{mutant['line']}: {mutant['outcome']}", file=sys.stderr)
            write(RESULTS, mutants)
        compiled += [mutant] * (not full and mutant["outcome"] not in (NOT_COMPILED, GONE))
    counts = {what: sum(what in mutant["outcome"] for mutant in compiled) for what in ("killed", "survived", "equivalent")}
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if counts["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())
