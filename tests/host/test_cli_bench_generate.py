"""warpfuse bench generate on the CPU with toy bundles: its file, checks, errors and the end by Ctrl-C."""

import json
import os
import sys
import unittest

import toy_bundles
from cli_bundles import baseline, copy_of, fused, perturbed, write
from host_program import CHECK_FAILED, MODEL, ROOT, USAGE, HostTestCase, folder, results, run_with_plugin, start
from toys import CONTEXT, HEAD_DIM, HEADS, LAYERS, VOCAB

sys.path.insert(0, str(ROOT / "scripts"))

from report.generation import accuracy_table, prefill_table, setup_table, speed_table, steps_table
from report.run import Generation, ReportError, Work

TOKENS = 12
FITS = CONTEXT - TOKENS + 1  # the last token is not fed back
NUMBERS = {"host_us_per_token": float, "floor_us": float, "softmax_kernels_share": float}
COUNTS = {"batch": int, "prompt": int, "tokens": int, "weight_bytes": int, "cache_bytes": int}
GROWTHS = {"host_growth_bytes": int, "device_growth_bytes": int}
ON_A_GPU = {name: type(None) for name in ("kernels_per_token", "empty_graph_us", "capture_note")}
SPREADS = {"tokens_per_s": dict, "ttft_ms": dict, "latency_us": dict}
ROW = {"model": str, "variant": str, "dtype": str, "graph": bool} | NUMBERS | COUNTS | GROWTHS | ON_A_GPU | SPREADS
PREFILL = {"model": str, "variant": str, "dtype": str, "batch": int, "prompt": int, "ms": dict}

os.environ["OMP_NUM_THREADS"] = "1"  # threads that wait for each other are slow beside other work

toy = folder / "toy"
copy_of(fused, "toy/fused-float32")
copy_of(baseline, "toy/baseline-float32")


def bench(*arguments):
    return run_with_plugin("bench", "generate", "--device", "cpu", *arguments)


class Bench(HostTestCase):
    def document(self, *arguments, code=0):
        path = folder / "results.json"
        path.unlink(missing_ok=True)
        result = bench("--rounds", 1, "--json", path, *arguments)
        self.assertEqual((result.returncode, result.stderr), (code, b""))
        return results(path)


class Measuring(HostTestCase):
    @classmethod
    def setUpClass(cls):
        cls.path = folder / "measuring.json"
        cls.result = cls.assert_ok(bench(
            "-m", toy, "--batch", "2,1", "--prompt", f"8,{FITS},{FITS + 1}", "-n", TOKENS, "--rounds", 3,
            "--prefill", f"2x40,1x{CONTEXT},1x{CONTEXT + 1}", "--json", cls.path,
        ))  # fmt: skip
        cls.document = results(cls.path)

    def assert_types(self, row, types):
        self.assertEqual({name: type(value) for name, value in row.items()}, types)

    def assert_ordered(self, spread, *names):
        self.assertEqual(set(spread), set(names))
        values = [spread[name] for name in names]
        self.assertEqual([type(value) for value in values], [float] * 3)
        self.assertEqual(values, sorted(values))
        self.assertGreater(values[0], 0)

    def test_document(self):
        document = self.document
        self.assert_head(document, "warpfuse-generate-1")
        self.assertTrue(document["command"].startswith("warpfuse bench generate --device cpu -m "), document["command"])
        self.assertGreater(document["read_gb_per_s"], 0)

    def test_rows_of_what_fits_the_context_and_without_graphs(self):
        rows = [(row["batch"], row["prompt"], row["variant"]) for row in self.document["rows"]]
        sizes = [(batch, prompt) for batch in (2, 1) for prompt in (8, FITS)]
        self.assertEqual(rows, [(*size, variant) for size in sizes for variant in ("baseline", "fused")])
        self.assertEqual({row["graph"] for row in self.document["rows"]}, {False})

    def test_fields_of_a_row(self):
        parameters = toy_bundles.ToyLanguageModel((False, False)).parameters()
        weight_bytes = sum(4 * parameter.numel() for parameter in parameters)
        for row in self.document["rows"]:
            self.assert_types(row, ROW)
            self.assertEqual((row["model"], row["dtype"], row["tokens"]), ("toy", "float32", TOKENS))
            self.assert_ordered(row["tokens_per_s"], "min", "p50", "max")
            self.assert_ordered(row["ttft_ms"], "min", "p50", "max")
            self.assert_ordered(row["latency_us"], "p5", "p50", "p95")
            self.assertEqual(row["weight_bytes"], weight_bytes)
            middle = row["prompt"] + TOKENS // 2
            self.assertEqual(row["cache_bytes"], 2 * LAYERS * row["batch"] * HEADS * HEAD_DIM * 4 * middle)
            read_us = (row["weight_bytes"] + row["cache_bytes"]) / (self.document["read_gb_per_s"] * 1e3)
            self.assertAlmostEqual(row["floor_us"] / read_us, 1, places=9)
            for name in ("host_us_per_token", "softmax_kernels_share"):
                self.assertGreater(row[name], 0)
            self.assertEqual(row["device_growth_bytes"], 0)

    def test_prefill(self):
        rows = [(row["batch"], row["prompt"], row["variant"]) for row in self.document["prefill"]]
        sizes = [(2, 40), (1, CONTEXT)]
        self.assertEqual(rows, [(*size, variant) for size in sizes for variant in ("baseline", "fused")])
        for row in self.document["prefill"]:
            self.assert_types(row, PREFILL)
            self.assert_ordered(row["ms"], "min", "p50", "max")

    def test_accuracy(self):
        self.assertEqual(len(self.document["accuracy"]), 1)
        row = self.document["accuracy"][0]
        names = ("model", "variant", "dtype", "first_divergence", "tokens_compared")
        self.assertEqual([row[name] for name in names], ["toy", "fused", "float32", None, TOKENS])
        self.assertGreaterEqual(row["largest_logit_difference"], 0)
        self.assertLessEqual(row["relative_logit_difference"], row["tolerance"])
        self.assertLess(row["tolerance"], 0.01)

    def test_a_line_for_each_row(self):
        lines = self.result.stdout.decode().splitlines()
        self.assertRegex(lines[0], r"^reading: \d+ GB/s$")
        rows, prefills = len(self.document["rows"]), len(self.document["prefill"])
        self.assertEqual(len(lines), 1 + rows + prefills)
        self.assertEqual(len([line for line in lines if " tokens/s, " in line]), rows)
        self.assertEqual(self.result.stderr, b"")

    def test_the_report_reads_it(self):
        run = Generation(self.path)
        self.assertEqual([len(run.rows), len(run.prefills)], [len(self.document[name]) for name in ("rows", "prefill")])
        row = self.document["rows"][1]
        read = run.find(Work("toy", "float32", row["batch"], row["prompt"], ""), row["variant"], graph=False)
        self.assertEqual(read.p50, row["tokens_per_s"]["p50"])
        for table in (setup_table, speed_table, steps_table, prefill_table, accuracy_table):
            self.assertIn("|", table(run, None), table.__name__)


class Models(Bench):
    def test_several_models_and_one_dtype(self):
        copy_of(fused, "other/fused-float32", model="other")
        copy_of(baseline, "other/baseline-float32", model="other")
        copy_of(fused, "other/fused-float16", model="other", dtype="float16")
        document = self.document("-m", toy, "-m", folder / "other", "--prompt", 8, "-n", 4, "--dtype", "float32")
        rows = [(row["model"], row["variant"]) for row in document["rows"]]
        self.assertEqual(rows, [(model, variant) for model in ("toy", "other") for variant in ("baseline", "fused")])
        self.assertEqual([row["model"] for row in document["accuracy"]], ["toy", "other"])

    def test_without_a_baseline_nothing_is_compared(self):
        copy_of(fused, "alone/fused-float32")
        document = self.document("-m", folder / "alone", "--prompt", 8, "-n", 4)
        self.assertEqual([row["variant"] for row in document["rows"]], ["fused"])
        self.assertEqual(document["accuracy"], [])

    def test_a_variant_with_other_logits(self):
        wrong = folder / "wrong"
        copy_of(baseline, "wrong/baseline-float32")
        copy_of(perturbed, "wrong/sdpa-float32")
        document = self.document("-m", wrong, "--prompt", 8, "-n", 4, code=CHECK_FAILED)
        self.assertEqual([row["variant"] for row in document["rows"]], ["baseline", "perturbed"])
        self.assertIsNone(document["rows"][1]["softmax_kernels_share"])  # whose softmax is not known
        accuracy = document["accuracy"][0]
        self.assertEqual(accuracy["variant"], "perturbed")
        self.assertAlmostEqual(accuracy["largest_logit_difference"], 0.5, places=3)
        self.assertLess(accuracy["tolerance"], accuracy["relative_logit_difference"])


class Prompts(Bench):
    SIZES = ("-m", toy, "--batch", 3, "--prompt", 9, "-n", 4)

    def prompts(self, *arguments):
        return self.document(*self.SIZES, *arguments)["prompts"]

    def test_random_ids(self):
        prompts = self.prompts()
        self.assertEqual(prompts["source"], "random")
        self.assertEqual(prompts, self.prompts())
        ids = sum(prompts["ids"], [])
        self.assertGreaterEqual(min(ids), 0)
        self.assertLess(max(ids), VOCAB)
        self.assertEqual(len({tuple(row) for row in prompts["ids"]}), len(prompts["ids"]))

    def test_ids_of_a_file(self):
        ids = [[1, 2, 3], [256] * 20]
        path = write("ids.json", json.dumps(ids))
        self.assertEqual(self.prompts("--prompt-ids", path), {"source": str(path), "ids": ids})

    def test_texts_of_a_file(self):
        path = write("prompts.txt", "Hello\na longer one than asked for\n")
        ids = [list(line.encode()) for line in path.read_text().splitlines()]
        self.assertEqual(self.prompts("--prompts", path), {"source": str(path), "ids": ids})

    def test_places_of_a_text(self):
        path = write("text.txt", "".join(f"{i} é\n" for i in range(4000)))
        source = path.read_bytes()
        for tokenizer in ((), ("--tokenizer", toy / "fused-float32")):
            prompts = self.prompts("--text", path, *tokenizer)
            self.assertEqual(prompts["source"], str(path))
            self.assertEqual(len(prompts["ids"]), 8)
            for i, ids in enumerate(prompts["ids"]):
                self.assertEqual(len(ids), 1024)
                begin = i * len(source) // 8
                self.assertIn(source.index(bytes(ids)), (begin, begin + 1))
                bytes(ids)[:-1].decode()  # from the start of a character


class Errors(HostTestCase):
    def test_usage(self):
        empty, no_json = write("empty.json", "[]"), write("no.json", "one, two")
        model = ("-m", toy)
        self.assert_each_fails(bench, USAGE, {
            (*model, "-n", "1"): "-n, --tokens: expected an integer of at least 2, got '1'",
            (*model, "--rounds", "0"): "--rounds: expected an integer of 1..1000, got '0'",
            (*model, "--prompt-ids", no_json): f"{no_json}: expected a JSON list of lists of token ids",
            (*model, "--prompt-ids", folder / "absent"): "absent: cannot be read",
            (*model, "--text", empty): f"--text {empty}: expected at least 8 bytes",
            (*model, "--text", empty, "--prompts", empty): "expected one of --prompts F, --text F and --prompt-ids F",
            (*model, "--dtype", "int7"): "--dtype: expected float32, float16 or bfloat16, got 'int7'",
            (*model, "--prompt", "250", "-n", "8"): "nothing to measure: no prompt with 8 more tokens fits",
            (*model, "--graph", "on"): "nothing to measure",
            (*model, "surplus"): "'surplus'",
        })  # fmt: skip

    def test_folders_without_bundles(self):
        result = bench("-m", toy, "-m", folder / "absent")
        self.assert_fails(result, MODEL, "absent: has no folders with bundles of a language model")


class Interrupting(HostTestCase):
    def test_keeps_the_rows_that_are_done(self):
        path = folder / "interrupted.json"
        prompts = range(1, 9)  # of which all lines together would wait in a buffer
        command = ("bench", "generate", "-m", toy, "--device", "cpu", "--json", path, "-n", 200, "--rounds", 40)
        with start(*command, "--prompt", ",".join(map(str, prompts))) as process:
            self.assertIn(b"reading: ", process.stdout.readline())
            self.assertIn(b"baseline", process.stdout.readline())  # rows are shown as they come
            stderr = self.interrupt(process)[1]
        self.assertEqual(stderr, "warpfuse: error: interrupted; what was measured is kept\n")
        rows = results(path)["rows"]
        self.assertGreaterEqual(len(rows), 2)
        self.assertLess(len(rows), 2 * len(prompts))
        self.assertEqual([row["variant"] for row in rows], ["baseline", "fused"] * (len(rows) // 2))
        self.assertFalse(results(path)["complete"])
        with self.assertRaisesRegex(ReportError, "not completed"):
            Generation(path)
        self.assertEqual(len(Generation(path, allow_partial=True).rows), len(rows))


if __name__ == "__main__":
    unittest.main()
