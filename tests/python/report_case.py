"""What the tests of scripts/report.py share: a docs folder, made-up peers and rows."""

import contextlib
import io
import json
import runpy
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import synthetic_bench as made_up

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
SHIPPED_PEERS = SCRIPTS.parent / "docs" / "benchmarks" / "peers.json"
USAGE = 2
sys.path.insert(0, str(SCRIPTS))
COMMAND = runpy.run_path(str(SCRIPTS / "report.py"))  # the package has the script's name

from report.documents import (
    CPU_SECTIONS,
    GENERATE_CPU_SECTIONS,
    GENERATE_SECTIONS,
    GPU_SECTIONS,
)


def peers(targets, best=()):
    return {
        "format": "warpfuse-peers-1",
        "device": "NVIDIA H200",
        "measured": "Made up.",
        "versions": {},
        "processor": {"fp32_per_clock": 128, "special_per_clock": 16, "clock_mhz": 1980},
        "peers": list(best),
        "targets": list(targets),
    }


def target(
    measure="share", limit=0.9, shape=(1024, 8192), dtype="float32", directions=("forward",), **more
):
    return {
        "device": "cuda",
        "operator": "softmax",
        "shape": list(shape),
        "dtype": dtype,
        "measure": measure,
        "at_least": limit,
        "directions": list(directions),
        **more,
    }


def best(us, timing="graph"):
    return {
        "operator": "softmax",
        "shape": [1024, 8192],
        "dtype": "float32",
        "timing": timing,
        "forward": {"us": us, "peer": "Other"},
    }


def plain(share=0.92, **more):
    """A benchmark of one row."""
    return made_up.bench([made_up.row((1024, 8192), "float32", share=share, **more)])


class ReportCase(unittest.TestCase):
    """A docs folder."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.docs = self.folder / "docs"
        (self.docs / "benchmarks").mkdir(parents=True)
        self.page = self.docs / "benchmarks" / "nvidia-h200.md"
        self.cpu_page = self.docs / "benchmarks" / "cpu.md"
        self.put("docs/benchmarks/peers.json", peers([]))

    def put(self, name, value):
        path = self.folder / name
        path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
        return path

    def put_gpu(self, bench):
        return self.put("docs/benchmarks/nvidia-h200.json", bench)

    def put_whole(self):
        """All presets merged, and a CPU's file."""
        parts = [
            f"{name}={self.put(f'{name}.json', getattr(made_up, name)())}"
            for name in ("table", "basic", "sweep")
        ]
        self.succeed("merge", "--folder", self.docs / "benchmarks", *parts)
        self.put("docs/benchmarks/cpu.json", made_up.cpu())
        self.put("docs/benchmarks/peers.json", SHIPPED_PEERS.read_text(encoding="utf-8"))

    def run_report(self, *arguments):
        """What the script does with these arguments, in this process."""
        docs = [] if arguments[:1] in (("merge",), ("join",), ("traffic",)) else ["--docs", self.docs]
        words = [str(word) for word in (*docs, *arguments)]
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = COMMAND["main"](words)
        return subprocess.CompletedProcess(words, code, output.getvalue(), errors.getvalue())

    def succeed(self, *arguments):
        done = self.run_report(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def fail_with(self, text, *arguments, code=USAGE):
        done = self.run_report(*arguments)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(text, done.stderr)

    def block(self, name):
        """The tables of a generated section; a partial run is enough."""
        self.succeed("--allow-partial")
        on_cpu = CPU_SECTIONS | GENERATE_CPU_SECTIONS
        section = (GPU_SECTIONS | GENERATE_SECTIONS | on_cpu)[name]
        text = (self.cpu_page if name in on_cpu else self.page).read_text(encoding="utf-8")
        own = text.split(f"## {section.title}\n\n")[1].split("\n\n## ")[0]
        return own.removeprefix(section.text).strip()

    def cells(self, name, *of):
        """The first line of a table that has all the words of `of`, as {column: cell}."""
        lines = [line for line in self.block(name).splitlines() if line.startswith("|")]
        header, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        for row in rows:
            if all(word in row for word in of):
                return dict(zip(header, row, strict=True))
        self.fail(f"no line with {of} in {name}")
