"""warpfuse tune without a GPU, and the tables that WARPFUSE_TUNING and --tuning name: used, or refused with one warning."""

import os
import re
import unittest

from cli_bundles import baseline, write
from host_program import DEVICE_ERROR, OUTPUT, USAGE, HostTestCase, folder, gpu_names, main, run, run_with_plugin

WARNING = re.compile(r"\Awarpfuse: warning: WARPFUSE_TUNING: file ([^\n]+); the shipped table is used\n\Z")


def info(table, *arguments):
    os.environ["WARPFUSE_TUNING"] = str(table)
    try:
        return run_with_plugin("info", *arguments)
    finally:
        del os.environ["WARPFUSE_TUNING"]


def shipped():
    return run_with_plugin("info", "--tuning").stdout.decode()


class Tables(HostTestCase):
    def source(self, result):
        return self.json_of(result)["tuning"]

    def test_the_shipped_table_is_named(self):
        result = run_with_plugin("info", "--json")
        self.assertEqual(result.stderr, b"")
        self.assertRegex(self.source(result), r"\Ashipped for NVIDIA [^,]+(, the nearest to .+)?\Z")
        self.assertRegex(run_with_plugin("info").stdout.decode(), r"\ntuning      shipped for NVIDIA ")

    def test_a_file_is_used(self):
        table = write("table.txt", shipped().replace("limit cluster_blocks 16", "limit cluster_blocks 4"))
        result = info(table, "--json")
        self.assertEqual(result.stderr, b"")
        self.assertEqual(self.source(result), f"file {table}")
        self.assertEqual(info(table, "--tuning").stdout.decode(), table.read_text())
        self.assertRegex(self.source(info("", "--json")), r"\Ashipped for ")

    def test_what_is_refused_is_one_warning_and_the_shipped_table(self):
        tables = {
            "missing": (None, "cannot be read"),
            "empty": ("", "cannot be read"),
            "words": ("no table\n", 'line 1, "no table": expected: '),
            "kernel": (shipped() + "forward 2 8 * warp 64 7 1 0\n", "no kernel has 7 packs a lane: there are 1, 2,"),
            "holes": ("forward 2 8 * warp 64 4 1 0\n", "no entry for any shape"),
        }
        for name, (text, reason) in tables.items():
            with self.subTest(name):
                table = folder / f"{name} \"table\".txt"
                if text is not None:
                    table.write_text(text)
                result = info(table, "--json")
                warned = WARNING.match(result.stderr.decode())
                self.assertTrue(warned, result.stderr)
                self.assertIn(reason, warned[1])
                source = self.source(result)
                self.assertRegex(source, r"\Ashipped for NVIDIA [^;]+; refused: ")
                self.assertIn(reason, source)
                self.assertEqual(info(table, "--tuning").stdout.decode(), shipped())

    def test_a_model_runs_on_with_a_table_that_is_refused(self):
        table = write("words.txt", "no table\n")
        result = run_with_plugin("generate", "-m", baseline, "-p", "a", "-n", "2", "--tuning", table)
        warnings = [line for line in self.assert_ok(result).stderr.decode().splitlines() if "warning" in line]
        self.assertEqual(len(warnings), 1, result.stderr)
        self.assertRegex(warnings[0] + "\n", WARNING)
        for command in ("serve", "perplexity", "verify", "selftest"):
            self.assertIn("--tuning F", run(command, "--help").stdout.decode(), command)


class Tuning(HostTestCase):
    def test_usage(self):
        for arguments, parts in {
            ("--functions", "softmax,gelu"): ("--functions: expected a list of softmax, attention", "'gelu'"),
            ("--minutes", "many"): ("--minutes: expected a number of 0..60",),
            ("--minutes", "61"): ("--minutes: expected a number of 0..60",),
            ("--device", "tpu"): ("--device: expected",),
            ("softmax",): ("unexpected argument 'softmax'",),
        }.items():
            with self.subTest(arguments):
                self.assert_fails(run_with_plugin("tune", *arguments), USAGE, *parts)

    def test_a_file_that_cannot_be_written_is_found_before_a_gpu_is_looked_for(self):
        for path in (folder, folder / "none" / "table.txt"):
            self.assert_fails(run_with_plugin("tune", "--out", path), OUTPUT, f"{path}: cannot be written")

    @unittest.skipIf(gpu_names(), "there is a GPU")
    def test_without_a_gpu(self):
        kept = write("kept.txt", "an earlier table\n")
        self.assert_fails(run_with_plugin("tune", "--out", kept), DEVICE_ERROR, "no GPU")
        self.assertEqual(kept.read_text(), "an earlier table\n")
        self.assertEqual(sorted(path.name for path in folder.glob("kept*")), ["kept.txt"])

    def test_the_cpu_is_no_gpu(self):
        self.assert_fails(run_with_plugin("tune", "--device", "cpu"), DEVICE_ERROR, "tune: needs a GPU")


if __name__ == "__main__":
    main()
