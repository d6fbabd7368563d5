"""scripts/report.py merge and traffic: runs of one machine as one file, and a profiler's counters.

python test_report_runs.py [unittest options]
"""

import json
import re
import sys
import unittest
from pathlib import Path

import synthetic_bench as made_up

# First, since it makes the package report importable.
from report_case import ReportCase, plain

from report.counters import parse
from report.errors import ReportError
from report.model import load_bench
from report.traffic import command


class Merging(ReportCase):
    def merge(self, *benches):
        parts = [f"p{i}={self.put(f'{i}.json', bench)}" for i, bench in enumerate(benches)]
        return self.succeed("merge", "--folder", self.folder / "out", *parts).stdout.strip()

    def test_a_row_of_two_presets_is_kept_once(self):
        first, second = plain(0.9), plain(0.5)
        second["rows"].append(made_up.row((7, 9), "float32"))
        path = Path(self.merge(first, second))
        self.assertEqual(path.name, "nvidia-h200.json")
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        self.assertEqual([row["presets"] for row in rows], [["p0", "p1"], ["p1"]])
        self.assertEqual(rows[0]["variants"], first["rows"][0]["variants"])

    def test_the_runs_copies_are_kept(self):
        second = plain() | {"large_copy": {"bytes": 1, "gb_per_s": 4190.0}}
        parts = [f"a={self.put('a.json', plain())}", f"b={self.put('b.json', second)}"]
        folder = self.docs / "benchmarks"
        self.succeed("merge", "--folder", folder, "--command", "a command", *parts)
        text = self.block("gpu-setup")
        self.assertIn(
            "4.26 TB/s (4 GiB read and written); 4.19 TB/s to 4.26 TB/s over the runs", text
        )
        self.assertIn("`a command`", text)

    def test_only_of_one_machine_and_build(self):
        for name, value in (
            ("device", {"type": "cuda", "name": "Other"}),
            ("versions", {}),
            ("tuning", "other"),
        ):
            parts = [
                f"a={self.put('a.json', plain())}",
                f"b={self.put('b.json', plain() | {name: value})}",
            ]
            self.fail_with(
                f"b.json: {name}: not those of", "merge", "--folder", self.folder, *parts
            )

    def test_incomplete(self):
        part = f"a={self.put('a.json', plain() | {'complete': False})}"
        self.fail_with("not completed", "merge", "--folder", self.folder, part)


class Counters(unittest.TestCase):
    HEADER = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
    BEFORE = '==PROF== Connected\n{"operator":"softmax"}\n==PROF== Profiling "a, b" - 0: 100%\n'

    def details(self, *lines):
        return parse(self.BEFORE + "\n".join([self.HEADER, *lines]) + "\n==PROF== Disconnected\n")

    def test_a_line_for_each_metric(self):
        counted = self.details(
            '"0","a<b, c>","dram__bytes_read.sum","byte","1,000,000"',
            '"0","a<b, c>","dram__bytes_write.sum","Kbyte","2.5"',
            '"1","d","dram__bytes_read.sum","Mbyte","1.25"',
            '"1","d","dram__bytes_write.sum","byte","0"',
            '"2","d","dram__bytes_read.sum","byte","0"',
            '"1","d","gpu__time_duration.sum","usecond","9"',
        )
        self.assertEqual((counted.read, counted.written, counted.kernels), (2_250_000, 2_500, 3))

    def test_a_column_for_each_metric(self):
        counted = parse(
            self.BEFORE + '"ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum"\n'
            '"","","Mbyte","Gbyte"\n"0","a","1,234.5","0.001"\n"1","b","1","0"\n'
        )
        self.assertEqual(
            (counted.read, counted.written, counted.kernels), (1_235_500_000, 1_000_000, 2)
        )

    def test_what_cannot_be_used(self):
        for output, message in (
            ("==PROF== Connected\n", "no kernel was profiled"),
            ("==ERROR== ERR_NVGPUCTRPERM - The user has no permission\n", "ERR_NVGPUCTRPERM"),
            (f"{self.HEADER}\n", "neither of the memory counters"),
            (
                f'{self.HEADER}\n"0","a","dram__bytes_read.sum","byte","n/a"\n',
                "expected a number, got 'n/a'",
            ),
            (
                f'{self.HEADER}\n"0","a","dram__bytes_read.sum","sector","1"\n',
                "expected a unit of bytes",
            ),
        ):
            with self.subTest(message), self.assertRaisesRegex(ReportError, re.escape(message)):
                parse(output)


class Traffic(ReportCase):
    def fake_ncu(self, body):
        path = self.put("ncu", f"#!{sys.executable}\nimport sys\n{body}\n")
        path.chmod(0o755)
        return path

    def test_counts_go_into_the_rows(self):
        path = self.put_gpu(plain())
        ncu = self.fake_ncu(
            "names = sys.argv[sys.argv.index('--metrics') + 1].split(',')\n"
            "assert sys.argv[sys.argv.index('--shapes') + 1] == '1024x8192'\n"
            "amount = 100 if sys.argv[-1] == 'warpfuse' else 300\n"
            'print(\'"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\')\n'
            'for name in names: print(f\'"0","k","{name}","byte","{amount}"\')'
        )
        for _ in range(2):  # a second time replaces the first
            self.succeed("traffic", "--json", path, "--host", "warpfuse", "--ncu", ncu)
        bench = load_bench(path)
        self.assertEqual(
            {n: (t.read, t.written) for n, t in bench.rows[0].traffic.items()},
            {"warpfuse": (100, 100), "aten": (300, 300)},
        )
        self.assertIn("--cache-control all", bench.traffic_how)

    def test_a_profiler_that_does_not_work(self):
        path = self.put_gpu(plain())
        before = path.read_bytes()
        arguments = ("traffic", "--json", path, "--host", "warpfuse", "--ncu")
        self.fail_with(
            "no permission",
            *arguments,
            self.fake_ncu("print('==ERROR== no permission'); sys.exit(1)"),
        )
        self.fail_with(
            "exit code 3: broken", *arguments, self.fake_ncu("print('broken'); sys.exit(3)")
        )
        self.fail_with("No such file", *arguments, self.folder / "none")
        self.assertEqual(path.read_bytes(), before)

    def test_command(self):
        call = command(
            "ncu",
            Path("warpfuse"),
            {
                "operator": "scaled_masked_softmax",
                "shape": [96, 8, 8],
                "dtype": "bfloat16",
                "mask": "causal",
            },
            "chain",
        )
        text = " ".join(call)
        self.assertIn("--profile-from-start off", text)
        self.assertIn(
            "warpfuse bench scaled_masked_softmax --device cuda --shapes 96x8x8 --dtype bfloat16",
            text,
        )
        self.assertTrue(text.endswith("--mask causal --profile chain"), text)


if __name__ == "__main__":
    unittest.main()
