#!/usr/bin/env python3
"""Changes one place of the CPU code at a time, and says whether the tests of its folder notice.

    mutants.py                      40 mutants drawn by seed; those that mutants.json has an outcome of are kept
    mutants.py --list               only shows what is drawn
    mutants.py --only 3,17          these again
    mutants.py --tests-from COMMIT  survivors again, with the tests of another commit: exit code 1 if it kills one
    mutants.py --cuda 8             prints mutants of CUDA code as patches, for a run on a GPU

Works in a worktree of HEAD below build/mutants; may be interrupted, and goes on where it was. A mutant takes one to
three minutes on 2 cores: its file compiled, the library linked, ctest until the first failure. Exit code 1: a mutant
survives that is not marked as equivalent in mutants.json, by hand and with a reason.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("mutants.json")
BUILD = ROOT / "build" / "mutants"
TREE, OBJECTS = BUILD / "source", BUILD / "objects"
COUNT, SEED, TIMEOUT = 40, 20, 300

# The ctest entries of a folder; the first that fits.
SUITES = (
    (r"ops/softmax/", r"^ops\.(softmax|cpu_paths)"),
    (r"ops/(scaled_masked_softmax|attention_mask)/", r"^ops\.masked"),
    (r"ops/fused_logprob/", r"^ops\.fused_logprob"),
    (r"ops/sample_tokens/", r"^ops\.sample"),
    (r"ops/(dropout_softmax|linear_dropout_softmax)/", r"^ops\.(dropout|masked_dropout|python_dropout)"),
    (r"ops/rowwise/", r"^ops\.(tuning|kernel_set|row_order|cpu_paths|softmax|masked)"),
    (r"ops/batching/", r"^ops\.python_transforms"),
    (r"ops/", r"^ops\."),
    (r"host_app/bench/", r"^host\.(units|cli_bench)"),
    (r"host_app/", r"^host\.(units|cli_[^b]|generate|bundles)"),
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
# Not a place that a test of behaviour could see: errors' texts, includes, types.
LEFT_OUT = re.compile(r"^\s*(//|#|/?\*|namespace|using|template|static_assert)|CHECK\(|fail\(|operator|requires|<<|prefetch|return [a-z_]+;$")


def draw(pattern: str, count: int, seed: int) -> list[dict]:
    """Places of the files that match the pattern, in a random order that the seed fixes."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "ops", "host_app"], capture_output=True, text=True, check=True)
    files = [name for name in listed.stdout.split() if re.search(pattern, name)]
    places = []
    for name in files:
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            if not LEFT_OUT.search(line):
                for change, (what, by) in enumerate(CHANGES):
                    places += [(name, number, line, change, found.span()) for found in re.finditer(what, line)]
    chosen = random.Random(seed).sample(places, count)
    return [
        {"file": name, "line": number, "from": line, "to": line[: span[0]] + CHANGES[change][1] + line[span[1] :]}
        for name, number, line, change, span in chosen
    ]


def run(*command: object, **options) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)


def prepare(tests_from: str | None) -> None:
    """The worktree at HEAD, built."""
    if not TREE.exists():
        run("git", "-C", ROOT, "worktree", "add", "--detach", TREE, "HEAD")
    run("git", "-C", TREE, "checkout", "--force", "--detach", run("git", "-C", ROOT, "rev-parse", "HEAD").stdout.strip())
    run("git", "-C", TREE, "clean", "-fdq")
    if tests_from:
        run("git", "-C", TREE, "rm", "-rq", "tests")
        run("git", "-C", TREE, "checkout", tests_from, "--", "tests")
    print("building what is to be changed", file=sys.stderr)
    configure = run("cmake", "-S", TREE, "-B", OBJECTS, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DWARPFUSE_UNITY=OFF",
                    "-DWARPFUSE_WITH_CUDA=OFF", f"-DWARPFUSE_PYTHON={os.environ.get('WARPFUSE_PYTHON', sys.executable)}")  # fmt: skip
    built = configure if configure.returncode else build()
    if built.returncode:
        sys.exit(f"mutants.py: the unchanged tree does not build:\n{built.stdout[-2000:]}{built.stderr[-2000:]}")


def build() -> subprocess.CompletedProcess:
    return run("cmake", "--build", OBJECTS)


def outcome(mutant: dict) -> str:
    """killed by which entry, survived, or does not compile."""
    path = TREE / mutant["file"]
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    if lines[mutant["line"] - 1] != mutant["from"]:
        return "is elsewhere now"
    lines[mutant["line"] - 1] = mutant["to"]
    path.write_text("\n".join(lines), encoding="utf-8")
    try:
        if build().returncode:
            return "does not compile"
        suite = next(entries for pattern, entries in SUITES if re.match(pattern, mutant["file"]))
        tested = run("ctest", "--test-dir", OBJECTS, "-R", suite, "--stop-on-failure", "--timeout", TIMEOUT)
        failed = re.search(r"Test +#\d+: (\S+) .*\*\*\*", tested.stdout)
        return f"killed by {failed[1] if failed else 'ctest'}" if tested.returncode else "survived"
    finally:
        path.write_text(text, encoding="utf-8")


def judge(mutants: list[dict], tests_from: str | None) -> None:
    """Fills in outcomes; the file is written after each."""
    for number, mutant in enumerate(mutants, 1):
        known = mutant.get("outcome", "")
        if tests_from and known == "survived":
            mutant["other tests"] = outcome(mutant)
        elif not tests_from and not known:
            mutant["outcome"] = outcome(mutant)
        else:
            continue
        said = mutant.get("other tests") or mutant["outcome"]
        print(f"{number}/{len(mutants)} {mutant['file']}:{mutant['line']}: {said}", file=sys.stderr)
        RESULTS.write_text(json.dumps(mutants, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", help="numbers, separated by commas")
    parser.add_argument("--tests-from", metavar="COMMIT")
    parser.add_argument("--cuda", type=int, metavar="COUNT")
    arguments = parser.parse_args()
    if arguments.cuda:
        for mutant in draw(r"\.cuh?$", arguments.cuda, arguments.seed):
            print(f"{mutant['file']}:{mutant['line']}\n-{mutant['from']}\n+{mutant['to']}")
        return 0
    # More than are asked for, since some do not compile.
    drawn = draw(r"^(?!.*(cuda|hopper|\.cuh?$)).*\.(cpp|h)$", 2 * COUNT, arguments.seed)
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    kept = {(mutant["file"], mutant["from"], mutant["to"]): mutant for mutant in known}
    mutants = [kept.get((mutant["file"], mutant["from"], mutant["to"]), mutant) for mutant in drawn]
    compiled = [mutant for mutant in mutants if mutant.get("outcome") != "does not compile"][:COUNT]
    if arguments.only:
        compiled = [mutants[int(number) - 1] for number in arguments.only.split(",")]
        for mutant in compiled:
            mutant.pop("outcome", None)
    if arguments.list:
        for number, mutant in enumerate(compiled, 1):
            print(f"{number} {mutant['file']}:{mutant['line']} {mutant.get('outcome', '')}\n-{mutant['from']}\n+{mutant['to']}")
        return 0
    prepare(arguments.tests_from)
    judge(compiled, arguments.tests_from)
    survivors = [mutant for mutant in compiled if mutant["outcome"] == "survived"]
    killed = [mutant for mutant in survivors if "killed" in mutant.get("other tests", "")]
    counts = {what: sum(what in mutant["outcome"] for mutant in compiled) for what in ("killed", "survived", "equivalent")}
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if (killed if arguments.tests_from else survivors) else 0


if __name__ == "__main__":
    sys.exit(main())
