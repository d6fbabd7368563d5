"""What scripts/generate_peers.py measures, with a tiny model on a CPU and without a compiler.

python test_generate_peers.py [unittest options]
"""

import contextlib
import io
import json
import math
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import made_up_runs as made_up

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import generate_peers
from report.run import GENERATE_PEERS, Generated, Run

SKIPPED = 77
CPU = {"type": "cpu", "name": "Made Up CPU"}
CASE = ["--case", "tiny", "float32", "2", "12", "-n", "80"]
try:
    import torch
    from peers import huggingface_run
    from peers.huggingface import WAYS, build, generator
    from peers.huggingface_run import Case, batch_of, measure
except ModuleNotFoundError as error:
    if error.name not in ("torch", "transformers"):
        raise  # a release without what the peers use
    print(f"skipped: {error.name} is not installed")
    sys.exit(SKIPPED)
from gpt2_config import BUILT_IN


def as_it_is(function, **_options):
    """In place of torch.compile, which takes minutes."""
    return function


class Ways(unittest.TestCase):
    def test_all_generate_the_same(self):
        prompts = batch_of([[5, 6, 7], [9, 1]], 3, 8, torch.device("cpu"))
        self.assertEqual(prompts[0].tolist(), [5, 6, 7, 5, 6, 7, 5, 6])
        self.assertEqual(prompts[2].tolist(), prompts[0].tolist())
        found = {}
        with mock.patch("torch.compile", as_it_is):
            for name, way in WAYS.items():
                model = build(BUILT_IN["tiny"], torch.float32, prompts.device, way.attention)
                generate = generator(model, way, prompts, 20)
                # Again, since caches are kept.
                runs = [generate(20).tolist() for _ in range(2)]
                self.assertEqual(*runs)
                self.assertEqual(generate(1).tolist(), [row[:9] for row in runs[0]])
                found[name] = runs[0]
        for name, rows in found.items():
            self.assertEqual([len(row) for row in rows], [28] * 3, name)
            self.assertEqual(rows, found["hf eager"], name)
        self.assertGreater(len({token for row in found["hf eager"] for token in row[8:]}), 1)


class Rows(unittest.TestCase):
    def test_out_of_time(self):
        case = Case("hf eager", "tiny", "float32", 1, 8, 4)
        row = measure(case, BUILT_IN["tiny"], [[1]], torch.device("cpu"), 0.0)
        self.assertEqual((row["status"], row["reason"]), ("not measured", "time"))
        self.assertNotIn("tokens_per_s", row)

    def test_what_fails_is_named(self):
        case = Case("hf eager", "tiny", "float32", 1, 200, 4)  # longer than the context
        row = measure(case, BUILT_IN["tiny"], [[1]], torch.device("cpu"), math.inf)
        self.assertEqual(row["status"], "not measured")
        self.assertIn("Error", row["reason"])

    def test_the_first_token_does_not_count(self):
        seconds = {"whole": 2.0, "first": 0.5}

        def took(_generate, _prompts, tokens):
            return seconds["first" if tokens == 1 else "whole"]

        case = Case("hf eager", "tiny", "float32", 3, 8, 11)
        with mock.patch.object(huggingface_run, "_seconds", took):
            row = measure(case, BUILT_IN["tiny"], [[1]], torch.device("cpu"), math.inf)
        self.assertEqual(row["tokens_per_s"], {"p50": 20.0, "min": 20.0, "max": 20.0})
        self.assertEqual(row["ttft_ms"]["p50"], 500.0)
        self.assertEqual(row["runs"], 4)
        seconds["first"] = seconds["whole"]
        with mock.patch.object(huggingface_run, "_seconds", took):
            row = measure(case, BUILT_IN["tiny"], [[1]], torch.device("cpu"), math.inf)
        self.assertIn("too few tokens", row["reason"])


class Program(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.rows = Path(folder.name) / "cpu-generate.json"

    def call(self, *words):
        errors = io.StringIO()
        few = mock.patch.object(huggingface_run, "ENOUGH_SECONDS", 0.0)
        with contextlib.redirect_stderr(errors), mock.patch("torch.compile", as_it_is), few:
            code = generate_peers.main(["--rows", str(self.rows), *words])
        return code, errors.getvalue()

    def written(self):
        path = self.rows.with_name("cpu-generate-peers.json")
        run = Run(path, GENERATE_PEERS)
        return run.raw, run.objects("rows", Generated)

    def test_a_file_that_the_report_reads(self):
        self.rows.write_text(json.dumps(made_up.generation(device=CPU)))
        code, errors = self.call(*CASE, "--limit-s", "1e9")  # however busy the machine is
        self.assertEqual(code, 0, errors)
        raw, peers = self.written()
        self.assertEqual([peer.variant for peer in peers], list(WAYS))
        self.assertTrue(all(peer.rate and peer.raw["how"] for peer in peers), errors)
        self.assertEqual(raw["device"]["name"], "Made Up CPU")
        self.assertIn("transformers", raw["versions"])

    def test_no_time_at_all(self):
        self.rows.write_text(json.dumps(made_up.generation(device=CPU)))
        code, errors = self.call(*CASE, "--limit-s", "0")
        self.assertEqual(code, 0, errors)
        self.assertEqual([peer.raw["reason"] for peer in self.written()[1]], ["time"] * len(WAYS))

    def test_unusable_input(self):
        self.assertEqual(self.call()[0], generate_peers.USAGE)
        for broken in (
            made_up.generation(device=CPU, prompts={"source": "random", "ids": []}),
            made_up.generation(device=CPU, prompts={"source": "random", "ids": [[1, "two"]]}),
            made_up.hugging_face(),
        ):
            self.rows.write_text(json.dumps(broken))
            code, errors = self.call(*CASE)
            self.assertEqual(code, generate_peers.USAGE)
            self.assertEqual(errors.count("\n"), 1, errors)
        self.rows.write_text(json.dumps(made_up.generation(device=CPU)))
        self.assertIn("model: expected gpt2", self.call("--case", "huge", *CASE[2:])[1])
        code, errors = self.call("--only", "no such row")
        self.assertEqual((code, "no row has 'no such row'" in errors), (generate_peers.USAGE, True), errors)

    def test_without_the_gpu(self):
        self.rows.write_text(json.dumps(made_up.generation()))
        with mock.patch("torch.cuda.is_available", return_value=False):
            code, errors = self.call()
        self.assertEqual(code, generate_peers.UNAVAILABLE)
        self.assertIn("not measured: there is no GPU", errors)

    def test_the_plan(self):
        words = ["--rows", "none", "--only", "gpt2 float16, batch 1, prompt 32"]
        found = generate_peers.cases(generate_peers.parse_arguments(words))
        self.assertEqual((found[0].peer, found[0].model), ("hf static+compile", "distilgpt2"))
        every = generate_peers.cases(generate_peers.parse_arguments(words[:2]))
        self.assertEqual(len(set(every)), len(every))
        self.assertTrue({case.peer for case in every} <= set(WAYS))


if __name__ == "__main__":
    unittest.main()
