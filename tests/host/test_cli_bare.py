"""Commands that run TorchScript files in no bundle, and those that draw random inputs of any length."""

import json
import unittest

import torch

import bare_models
import toy_bundles
from cli_bundles import baseline, fused, module, perturbed, write
from host_program import (
    CHECK_FAILED,
    MODEL,
    PLUGIN_ERROR,
    USAGE,
    HostTestCase,
    folder,
    lonely_host,
    results,
    run,
    run_with_plugin,
)
from toys import END_OF_TEXT, VOCAB

causal = bare_models.save_causal(folder / "causal.pt")
shorter = bare_models.save_causal(folder / "shorter.pt", positions=32)
fixed = bare_models.save(bare_models.FixedLength(), folder / "fixed.pt", torch.ones(2, 7))
IDS = f"B,T:int64:0..{VOCAB}"
ROUTED = "1 of 1 softmax calls routed to the plugin\n"


class Verification(HostTestCase):
    def verify(self, *arguments, code=0, **options):
        result = run_with_plugin("verify", *arguments, **options)
        self.assertEqual(result.returncode, code, result.stdout.decode() + result.stderr.decode())
        return result.stdout.decode().splitlines()

    def test_a_rewritten_file_at_every_length_and_batch(self):
        sizes = ("--input", IDS, "--lengths", "1,2,7,64,65", "--batch", "1,3")
        result = run_with_plugin("verify", causal, causal, "--rewrite", *sizes)
        lines = self.assert_ok(result).stdout.decode().splitlines()
        self.assertEqual(lines[:2], [f"model      {causal}, rewritten", f"reference  {causal}"])
        self.assertEqual(result.stderr.decode(), f"{causal}: {ROUTED}")  # of MODEL alone
        named = [f"B={batch} T={length}" for batch in (1, 3) for length in (1, 2, 7, 64, 65)]
        self.assertEqual([line.split("  ")[0] for line in lines[4:-1]], named)
        for line in (lines[8], lines[13]):
            self.assertRegex(line, r"^B=. T=65 +both raise: forward: index out of range")
        self.assertRegex(lines[-1], r"^agree: largest difference .*, both raise in 2 of 10$")

    def test_a_length_that_is_baked_in(self):
        lines = self.verify(fixed, fixed, "--rewrite", "--input", "B,T", "--lengths", "7,8")
        self.assertRegex(lines[5], r"^B=1 T=8 +both raise: forward: .*size of tensor")
        result = run_with_plugin("verify", fixed, fixed, "--input", "B,T", "--lengths", "8,9")
        self.assertEqual(result.returncode, MODEL)  # which compares nothing
        self.assertIn("nothing was compared: both raise: forward: ", result.stderr.decode())

    def test_a_length_that_one_model_takes_alone(self):
        sizes = ("--input", IDS, "--lengths", "32,33")
        for pair, name in (((shorter, causal), "model"), ((causal, shorter), "reference")):
            lines = self.verify(*pair, *sizes, code=CHECK_FAILED)
            self.assertRegex(lines[5], rf"^B=1 T=33 +only the {name} raises: forward: index out of range.*  FAIL$")
            self.assertTrue(lines[6].startswith("DIFFER: "))

    def test_bundles_of_language_models(self):
        sizes = ("--lengths", "1,9,257", "--batch", "1,3")
        lines = self.verify(fused, baseline, *sizes)
        self.assertRegex(lines[6], "^B=1 T=257 +both raise: .* the model's context is 256$")
        self.assertRegex(lines[-1], "^agree: .* both raise in 2 of 6$")
        self.verify(perturbed, baseline, *sizes, code=CHECK_FAILED)
        lines = self.verify(baseline, baseline, "--rewrite", "-n", "2")
        self.assertEqual([line.split()[0] for line in lines[4:-1]], ["prefill", "decode", "forward"])

    def test_inputs_in_place_of_those_of_a_bundle(self):
        inputs = ("--input", "B,T:float64", "--input", "2:int32:0..3")
        lines = self.verify(module, module, *inputs, "--batch", "3,4", "--lengths", "5")
        self.assertEqual([line.split("  ")[0] for line in lines[4:-1]], ["B=3 T=5", "B=4 T=5"])
        bare = module / "model.pt"
        self.assertEqual(len(self.verify(bare, module, "-n", "3")), 3 + 1 + 3 + 1)
        self.assert_fails(run("verify", baseline, module), MODEL, "their kinds differ")

    def test_usage(self):
        self.assert_fails(run("verify", causal, causal), USAGE, causal, "in no bundle", "--input B,T:int64:0..50257")
        self.assert_fails(run("verify", baseline, baseline, "--input", IDS), USAGE, "--input")
        cases = {
            ("--input", IDS): "--lengths is missing",
            ("--input", IDS, "--lengths", "0"): "--lengths: expected integers of 1..",
            ("--input", "B:int64:0..9", "--lengths", "4"): "--lengths: no input has the size T",
            ("--input", "T", "--lengths", "4", "--batch", "2"): "--batch: no input has the size B",
            ("--input", IDS, "--lengths", "4", "-n", "2"): "--steps has no meaning",
        }
        for bad in ("B,T:int64", "B,T:int8:0..2", "B,U", "B,-1", "B,T:int64:2..2", "B,T:int64:2", "B,T:float32:0..1"):
            cases["--input", bad, "--lengths", "4"] = f"got '{bad}'"
        self.assert_each_fails(lambda *arguments: run("verify", causal, causal, *arguments), USAGE, cases)

    def test_what_a_file_needs(self):
        sizes = ("--input", IDS, "--lengths", "4")
        result = run("verify", causal, causal, *sizes, "--rewrite", host=lonely_host("lonely"))
        self.assert_fails(result, PLUGIN_ERROR, "no plugin", "--plugin")
        missing = folder / "missing.pt"
        self.assert_fails(run_with_plugin("verify", missing, causal, *sizes), MODEL, missing, "cannot be read")
        library = torch.library.Library("warpfuse_test_bare", "DEF")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: 2 * x, "CompositeExplicitAutograd")
        twice = bare_models.Calls(torch.ops.warpfuse_test_bare.twice)
        unknown = bare_models.save(twice, folder / "unknown.pt", torch.ones(2))
        for result in (
            run_with_plugin("verify", unknown, causal, "--input", "4"),
            run_with_plugin("generate", "-m", unknown, "--tokenizer", baseline, "-p", "a"),
            run_with_plugin("rewrite", unknown, "--dry-run"),
        ):
            self.assert_fails(result, PLUGIN_ERROR, unknown, "warpfuse_test_bare::twice")


class Generation(HostTestCase):
    def generate(self, model, *arguments, **options):
        return run_with_plugin("generate", "-m", model, "--tokenizer", baseline, *arguments, **options)

    def test_says_what_the_model_does(self):
        model = bare_models.load(causal)
        tokens = list(b"Hello")
        for _ in range(12):
            tokens.append(int(model(torch.tensor([tokens]))["logits"][0, -1].argmax()))
        for kind in (None, bare_models.CausalTuple, bare_models.CausalTensor):
            path = bare_models.save_causal(folder / f"{kind.__name__}.pt", kind) if kind else causal
            for option, routed in (((), 0), (("--rewrite",), 12))[kind is not None :]:
                result = self.generate(path, "-p", "Hello", "-n", 12, "--json", *option)
                self.assertEqual(self.json_of(result)["ids"], tokens[5:])
                self.assertEqual(self.softmax_calls(result), (routed, 12))
                stderr = result.stderr.decode()
                self.assertEqual(ROUTED in stderr, bool(option))
                self.assertRegex(stderr, rf"(?m)^note: {path} has no cache, .* traced_models/export.py has one$")

    def test_rows_of_different_lengths(self):
        texts = ("Hello", "a", "The river rises")
        together = self.said(self.generate(causal, "--prompts", write("prompts", "\n".join(texts)), "--batch", 2, "-n", 9))
        self.assertEqual(together, "---\n".join(self.said(self.generate(causal, "-p", text, "-n", 9)) for text in texts))

    def test_ends_at_the_end_of_text(self):
        table = bare_models.Table(toy_bundles.CycleModel([*b"ab", END_OF_TEXT]).table)
        path = bare_models.save(table, folder / "ending.pt", torch.zeros(1, 2, dtype=torch.long))
        result = self.json_of(self.generate(path, "-p", "a", "--json"))
        self.assertEqual((result["text"], result["finish_reason"]), ("b", "end_of_text"))

    def test_a_sequence_that_is_too_long_for_the_model(self):
        result = self.generate(causal, "-p", "x" * 60, "-n", 9, "--json")
        self.assertEqual(result.returncode, MODEL)
        line = json.loads(result.stdout)
        self.assertEqual((len(line["ids"]), line["finish_reason"], line["complete"]), (5, "error", False))
        self.assertRegex(result.stderr.decode(), r"\nwarpfuse: error: decode: index out of range[^\n]*\n\Z")

    def test_files_that_cannot_be_generated_from(self):
        self.assert_fails(run_with_plugin("generate", "-m", causal, "-p", "a"), USAGE, causal, "--tokenizer DIR")
        self.assert_fails(self.generate(causal, "-p", "a", "--truncate"), USAGE, "--truncate")
        bundled = baseline / "model.pt"
        self.assert_fails(self.generate(bundled, "-p", "a"), MODEL, bundled, "forward takes 3 arguments")
        self.assert_fails(self.generate(fixed, "-p", "a"), MODEL, fixed, "expected logits [B, T, V], got 2 dimensions")
        softmax = bare_models.save(torch.nn.Softmax(-1), folder / "softmax.pt", torch.ones(2, 3))
        self.assert_fails(self.generate(softmax, "-p", "a"), MODEL, softmax, "softmax")


class Bench(HostTestCase):
    def bench(self, *arguments):
        return run_with_plugin("bench", "module", "--device", "cpu", "--rounds", 2, *arguments)

    def test_a_file_and_its_rewritten_form(self):
        path = folder / "bench-module.json"
        sizes = ("--input", IDS, "--batch", "1,2", "--lengths", "16,33")
        result = self.bench(causal, shorter, "--rewrite", "--json", path, *sizes)
        self.assertEqual(result.returncode, MODEL)  # `shorter` takes no 33 tokens
        stderr = f"{causal}: {ROUTED}warpfuse: error: 2 of 12 rows raise\n"
        self.assertEqual(result.stderr.decode(), stderr)
        document = results(path)
        self.assertEqual((document["format"], document["complete"]), ("warpfuse-module-1", True))
        self.assertEqual(document["device"]["type"], "cpu")
        models = [str(causal), f"{causal}, rewritten", str(shorter)]
        rows = [(row["inputs"], row["model"]) for row in document["rows"]]
        self.assertEqual(rows, [(f"B={b} T={t}", model) for b in (1, 2) for t in (16, 33) for model in models])
        for first, *others in zip(*[iter(document["rows"])] * 3, strict=True):
            for row in (first, *others):
                if "failure" in row:
                    self.assertEqual((row["model"], row["inputs"][-2:]), (str(shorter), "33"))
                    self.assertIn("index out of range", row["failure"])
                    continue
                self.assertEqual(row["rounds"], 2)
                self.assertGreaterEqual(row["calls_per_sample"], 1)
                times = [row[name] for name in ("min_us", "p5_us", "p50_us", "p95_us")]
                self.assertEqual(times, sorted(times))
                self.assertAlmostEqual(row["speedup"], first["p50_us"] / row["p50_us"])
        lines = result.stdout.decode().splitlines()
        self.assertEqual(len(lines), 1 + 12)
        self.assertEqual(len([line for line in lines if " raises: forward: " in line]), 2)

    def test_bundles_and_usage(self):
        slow = toy_bundles.write_module(folder / "timed", lambda v, i: v[i])
        self.assertEqual(len(self.said(self.bench(slow, slow)).splitlines()), 3)
        self.assert_fails(self.bench(), USAGE, "expected MODEL")
        self.assert_fails(self.bench(causal), USAGE, causal, "--input")
        self.assert_fails(self.bench(baseline), USAGE, baseline, "bench generate")


if __name__ == "__main__":
    unittest.main()
