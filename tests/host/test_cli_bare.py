"""Commands that run TorchScript files in no bundle, and those that draw random inputs of any length."""

import shutil
import unittest

import torch

import bare_models
import toy_bundles
from cli_bundles import baseline, folder, fused, perturbed
from host_program import CHECK_FAILED, HOST, MODEL, PLUGIN_ERROR, USAGE, HostTestCase, run, run_with_plugin

causal = bare_models.save_causal(folder / "causal.pt")
shorter = bare_models.save_causal(folder / "shorter.pt", positions=32)
fixed = bare_models.save(bare_models.FixedLength(), folder / "fixed.pt", torch.ones(2, 7))
IDS = f"B,T:int64:0..{toy_bundles.VOCAB}"
ROUTED = "1 of 1 softmax calls routed to the plugin\n"


def lonely_host():
    """The program where no plugin lies beside it."""
    path = folder / "lonely-bare" / "bin" / "warpfuse"
    path.parent.mkdir(parents=True)
    shutil.copy(HOST, path)
    return path


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
        module = toy_bundles.write_module(folder / "module-inputs", lambda v, i: v[i])
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
        for arguments, message in cases.items():
            with self.subTest(arguments):
                self.assert_fails(run("verify", causal, causal, *arguments), USAGE, message)

    def test_what_a_file_needs(self):
        sizes = ("--input", IDS, "--lengths", "4")
        result = run("verify", causal, causal, *sizes, "--rewrite", host=lonely_host())
        self.assert_fails(result, PLUGIN_ERROR, "no plugin", "--plugin")
        missing = folder / "missing.pt"
        self.assert_fails(run_with_plugin("verify", missing, causal, *sizes), MODEL, missing, "cannot be read")
        library = torch.library.Library("warpfuse_test_bare", "DEF")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: 2 * x, "CompositeExplicitAutograd")
        unknown = folder / "unknown.pt"
        torch.jit.trace(torch.ops.warpfuse_test_bare.twice, torch.ones(2)).save(str(unknown))
        result = run_with_plugin("verify", unknown, causal, "--input", "4")
        self.assert_fails(result, PLUGIN_ERROR, unknown, "warpfuse_test_bare::twice")


if __name__ == "__main__":
    unittest.main()
