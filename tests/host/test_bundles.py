"""The exported bundles through the host program, on the device that WARPFUSE_DEVICE names."""

import os
import sys
import unittest

from host_program import SKIPPED, HostTestCase, bundles_or_skip, gpu_names, run_with_plugin

DEVICE = os.environ["WARPFUSE_DEVICE"]
VARIANTS = ("baseline", "fused", "sdpa")


class Bundles(HostTestCase):
    @classmethod
    def setUpClass(cls):
        options = ("-p", "The river", "-n", "48", "--device", DEVICE)
        cls.generated = {
            variant: run_with_plugin("generate", "-m", bundles / f"{variant}-float32", *options)
            for variant in VARIANTS
        }

    def test_fused_and_sdpa_agree_with_baseline(self):
        for variant in ("fused", "sdpa"):
            with self.subTest(variant):
                pair = (bundles / f"{variant}-float32", bundles / "baseline-float32")
                result = run_with_plugin("verify", *pair, "--device", DEVICE)
                self.assertEqual(result.returncode, 0, result.stdout.decode() + result.stderr.decode())
                self.assertRegex(result.stdout.decode(), r"(?m)^agree: ")

    def test_module_that_is_no_language_model(self):
        folder = bundles.parent / "softmax-module"
        pair = (folder / "fused-float32", folder / "baseline-float32")
        result = run_with_plugin("verify", *pair, "--device", DEVICE)
        self.assertEqual(result.returncode, 0, result.stdout.decode() + result.stderr.decode())

    def test_all_variants_say_the_same(self):
        texts = [self.assert_ok(self.generated[variant]).stdout for variant in VARIANTS]
        self.assertGreater(len(texts[0].split()), 15)
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(texts[0], texts[2])

    def test_the_plugin_serves_every_softmax_of_fused_only(self):
        served, calls = self.softmax_calls(self.generated["fused"])
        self.assertGreater(calls, 48)
        self.assertEqual(served, calls)
        for variant in ("baseline", "sdpa"):
            self.assertEqual(self.softmax_calls(self.generated[variant]), (0, calls))


if __name__ == "__main__":
    if DEVICE != "cpu" and not gpu_names():
        print("skipped: no GPU")
        sys.exit(SKIPPED)
    bundles = bundles_or_skip()
    unittest.main()
