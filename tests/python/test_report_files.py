"""scripts/report.py as a program: what it writes and finds changed, and what it says to bad input.

python test_report_files.py [unittest options]
"""

import copy
import subprocess
import sys
import unittest

import synthetic_bench as made_up

# First, since it makes the package report importable.
from report_case import SCRIPTS, USAGE, ReportCase, peers, plain, target


class Documents(ReportCase):
    def test_written_once_then_unchanged(self):
        self.put_whole()
        first = self.succeed().stdout.split()
        self.assertEqual(len(first), 5)
        self.assertEqual(self.succeed().stdout, "")
        self.succeed("--check")
        text = self.page.read_text(encoding="utf-8")
        self.assertTrue(text.startswith("# Benchmarks: NVIDIA H200\n"))
        titles = [line for line in text.splitlines() if line.startswith("## ")]
        self.assertEqual(len(titles), len(set(titles)))
        self.assertNotIn("<!--", text)

    def test_edits_by_hand_are_found(self):
        self.put_whole()
        self.succeed()
        for path in (self.page, *(self.docs / "images").iterdir()):
            with self.subTest(path.name):
                whole = path.read_bytes()
                place = whole.index(b"4.26 TB/s")
                path.write_bytes(whole[:place] + b"5" + whole[place + 1 :])
                self.fail_with(path.name, "--check", code=1)
                path.write_bytes(whole)

    def test_check_writes_nothing(self):
        self.put_whole()
        self.assertEqual(self.run_report("--check").returncode, 1)
        self.assertFalse(self.page.exists() or self.cpu_page.exists())
        self.assertFalse((self.docs / "images").exists())

    def test_another_device_keeps_its_page(self):
        self.put_whole()
        self.succeed()
        cpu = self.cpu_page.read_text(encoding="utf-8")
        (self.docs / "benchmarks" / "cpu.json").unlink()
        self.succeed()
        self.assertEqual(self.cpu_page.read_text(encoding="utf-8"), cpu)

    def test_a_preset_that_is_missing(self):
        self.put_gpu(made_up.table())
        self.fail_with("no rows for: basic")
        done = self.succeed("--allow-partial")
        self.assertIn("share.svg is left as it is", done.stderr)
        self.assertEqual(self.block("basic"), "Not measured in this run.")


class Input(ReportCase):
    def rejects(self, message, **fields):
        bench = plain() | fields
        self.put_gpu(bench)
        self.fail_with(message, "--allow-partial")

    def test_files(self):
        self.fail_with("nvidia-h200.json: cannot be read")
        self.put_gpu("{")
        self.fail_with("no JSON")
        self.put_gpu("[]")
        self.fail_with("expected an object")
        self.put_gpu(made_up.cpu())
        self.fail_with("expected cuda, got cpu")

    def test_exit_code_of_the_script(self):
        for words, code in ((("--help",), 0), (("--sing",), USAGE)):
            done = subprocess.run(
                [sys.executable, "-B", SCRIPTS / "report.py", *words],
                capture_output=True,
                check=False,
            )
            self.assertEqual(done.returncode, code, done.stderr)

    def test_usage(self):
        self.fail_with("unrecognized arguments: --sing", "--sing")
        self.fail_with("expected PRESET=FILE, got 'file'", "merge", "--folder", self.folder, "file")
        self.fail_with("--host", "traffic", "--json", "file")

    def test_format_and_completeness(self):
        self.rejects("format: expected warpfuse-bench-1, got other", format="other")
        self.put_gpu(plain() | {"complete": False})
        self.fail_with("the run was not completed")
        self.succeed("--allow-partial")

    def test_fields(self):
        self.rejects("no rows", rows=[])
        self.rejects(
            "large_copy: gb_per_s: expected a number above 0, got 0",
            large_copy={"bytes": 1, "gb_per_s": 0},
        )
        self.rejects("rows[0]: expected an object", rows=[1])
        self.rejects("is there twice", rows=plain()["rows"] * 2)
        for path, value, message in (
            (("floor_us",), "fast", "rows[0]: floor_us: expected a number, got 'fast'"),
            (("shape",), [0], "rows[0]: shape: expected sizes above 0"),
            (("dim",), 2, "rows[0]: dim: 2 is no dimension"),
            (("direction",), "up", "rows[0]: direction: expected forward or backward or both, got up"),
            (("variants", 0, "p50_us"), None, "rows[0]: variants[0]: p50_us is missing"),
            (("variants", 0, "p50_us"), True, "rows[0]: variants[0]: p50_us: expected a number"),
            (("variants", 0, "status"), "odd", "status: expected ok or unsupported or wrong, got odd"),
            (("variants", 0, "launches", 0, "grid"), "x", "launches[0]: grid: expected an integer"),
        ):
            with self.subTest(message):
                rows = copy.deepcopy(plain()["rows"])
                *parents, name = path
                at = rows[0]
                for step in parents:
                    at = at[step]
                at[name] = value
                self.rejects(message, rows=rows)

    def test_peers(self):
        self.put_gpu(plain())
        self.put("docs/benchmarks/peers.json", peers([target("height")]))
        self.fail_with("targets[0]: measure: expected share", "--allow-partial")


if __name__ == "__main__":
    unittest.main()
