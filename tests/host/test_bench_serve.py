"""scripts/bench_serve.py on a toy model: what it measures, and what its tables say of it."""

import json
import os
import shutil
import subprocess
import sys
import unittest

from cli_bundles import fused
from host_program import HOST, ROOT, HostTestCase, folder, main, results

SCRIPTS = ROOT / "scripts"
sys.path.insert(0, str(SCRIPTS))

from report import serving
from report.text import with_block


class BenchServe(HostTestCase):
    def measured(self, *options, **environment):
        path = folder / "serve.json"
        command = [sys.executable, SCRIPTS / "bench_serve.py", "--host", HOST, "--bundle", fused, "--device", "cpu", "--json", path,
                   "--prompt", 8, "-n", 4, "--seconds", 0.5, *options]  # fmt: skip
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=os.environ | environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return results(path), done.stderr

    def test_by_own_clients(self):
        path = folder / "path"
        path.mkdir()
        (path / "taskset").symlink_to(shutil.which("taskset"))
        run, said = self.measured("--clients", "1,2", "--long-clients", 3, "--long-prompt", 40, PATH=str(path), WRK="")
        self.assertIn("wrk is neither on PATH nor named by WRK", said)
        self.assertEqual([(row["clients"], row["stream"]) for row in run["rows"]],
                         [(clients, stream) for clients in (1, 2) for stream in (False, True)])  # fmt: skip
        for row in (*run["rows"], run["between_tokens"]):
            self.assertGreater(row["tokens_per_s"], 0)
            self.assertGreater(row["requests"], 0)
            self.assertEqual(row["failed"], 0)
        for row in run["rows"]:
            self.assertEqual(row["first_answers_ms"]["count"], row["clients"])
        within = run["between_tokens"]["between_tokens_within_ms_at_server"]
        self.assertLessEqual(0, within["0.5"])
        self.assertLessEqual(within["0.5"], within["2"])
        self.assertEqual(within["all"], 1)
        between = run["between_tokens"]["between_tokens_ms"]
        # A token of each answer is its first.
        self.assertAlmostEqual(between["count"] / run["between_tokens"]["first_token_ms"]["count"], 3, delta=0.5)
        self.assertLessEqual(between["p50"], between["p99"])
        self.assertGreater(run["first_token"]["ms"]["p50"], 0)
        docs = folder / "docs"
        (docs / "benchmarks").mkdir(parents=True)
        (docs / "benchmarks" / "cpu-serve.json").write_text(json.dumps(run))
        block = serving.block(docs)
        self.assertIn("| 1 |", block)
        self.assertIn("3 clients with prompts of 40 tokens", block)
        page = f"a\n{serving.BEGIN}\nold\n{serving.END}\nb\n"
        self.assertEqual(with_block(page, block), f"a\n{block}\nb\n")

    @unittest.skipIf(shutil.which("wrk") is None, "wrk is not installed")
    def test_by_wrk(self):
        run, _ = self.measured("--clients", 2, "--long-clients", 0)
        self.assertRegex(run["load"], r"^wrk \d")
        for row in run["rows"]:
            self.assertGreater(row["tokens_per_s"], 0)
            self.assertGreater(row["latency_ms"]["p99"], 0)
            self.assertEqual(row["failed"], 0)


class Targets(unittest.TestCase):
    def test_a_target_just_missed_is_not_met(self):
        row = {"generate_tokens_per_s": 1000, "latency_ms": {"p50": 1, "p99": 2}, "first_answers_ms": {"max": 3}, "clients": 32}
        rows = [row | {"stream": False, "tokens_per_s": 899.9}, row | {"stream": True, "tokens_per_s": 750}]
        run = {"rows": rows, "device": {"type": "cuda"}}
        self.assertIn("| 899 | 0.89x ✗ | 750 | 0.75x ✓ |", serving.rows_table(run))


if __name__ == "__main__":
    main()
