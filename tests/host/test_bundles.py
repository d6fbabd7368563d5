"""The exported bundles through the host program, on the device that WARPFUSE_DEVICE names."""

import os
import sys
import unittest

from host_program import SKIPPED, HostTestCase, bundles_or_skip, gpu_names, run_with_plugin

DEVICE = os.environ["WARPFUSE_DEVICE"]


class Bundles(HostTestCase):
    def generate(self, variant, *arguments):
        bundle = bundles / f"{variant}-float32"
        options = ("-p", "The river", "-n", "64", "--device", DEVICE)
        return self.assert_ok(run_with_plugin("generate", "-m", bundle, *options, *arguments))

    def test_fused_and_sdpa_agree_with_baseline(self):
        for variant in ("fused", "sdpa"):
            with self.subTest(variant):
                pair = (bundles / f"{variant}-float32", bundles / "baseline-float32")
                result = run_with_plugin("verify", *pair, "--device", DEVICE)
                self.assertEqual(result.returncode, 0, result.stdout.decode() + result.stderr.decode())
                self.assertRegex(result.stdout.decode(), r"(?m)^agree: ")

    def test_module_that_is_no_language_model(self):
        pair = (bundles.parent / "softmax-module" / f"{variant}-float32" for variant in ("fused", "baseline"))
        result = run_with_plugin("verify", *pair, "--device", DEVICE)
        self.assertEqual(result.returncode, 0, result.stdout.decode() + result.stderr.decode())

    def test_all_variants_say_the_same(self):
        texts = [self.generate(variant).stdout for variant in ("baseline", "fused", "sdpa")]
        self.assertGreater(len(texts[0].split()), 20)
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(texts[0], texts[2])

    def test_the_plugin_serves_every_softmax_of_fused_only(self):
        served, calls = self.softmax_calls(self.generate("fused"))
        self.assertGreater(calls, 64)
        self.assertEqual(served, calls)
        for variant in ("baseline", "sdpa"):
            self.assertEqual(self.softmax_calls(self.generate(variant)), (0, calls))


if __name__ == "__main__":
    if DEVICE != "cpu" and not gpu_names():
        print("skipped: no GPU")
        sys.exit(SKIPPED)
    bundles = bundles_or_skip()
    unittest.main()
