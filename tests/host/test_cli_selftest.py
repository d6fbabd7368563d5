"""`warpfuse selftest`: passes with the plugin, and says which operators of another one are wrong."""

import re
import unittest

from host_program import BAD_PLUGIN, PLUGIN_ERROR, USAGE, HostTestCase, gpu_names, run, run_with_plugin


class SelfTest(HostTestCase):
    def test_all_operators_on_all_devices(self):
        lines = self.said(run_with_plugin("selftest")).splitlines()
        devices = ["cpu", "cuda:0"] if gpu_names() else ["cpu"]
        self.assertEqual(len(lines), 2)
        if devices == ["cpu"]:
            self.assertEqual(lines.pop(0), "no GPU that the plugin has code for: the CPU alone is tested")
        for line, device in zip(lines, devices, strict=True):
            self.assertRegex(line, rf"^{device}: \d{{4,}} checks, 0 failed, \d+ s$")

    def test_a_line_for_each_failure(self):
        result = run("selftest", "--device", "cpu", "--operators", "softmax", "--plugin", BAD_PLUGIN)
        *failures, summary = self.assert_check_fails(result).splitlines()
        for line in failures:  # the forward is ATen's, which rounds to a half type more than once
            self.assertRegex(line, r"^FAIL cpu softmax (back|for)ward \S+ \S+ none warpfuse (normal|wide|edges): ")
        backward = [line for line in failures if " backward " in line]
        self.assertGreater(len(backward), 100)
        for line in backward:
            self.assertTrue(line.endswith(": no gradient today"), line)
        self.assertEqual(int(re.search(r"(\d+) failed", summary)[1]), len(failures))

    def test_one_operator_takes_no_time_of_the_others(self):
        few = run_with_plugin("selftest", "--device", "cpu", "--threads", "1", "--operators", "sample_tokens")
        self.assertRegex(self.said(few), r"^cpu: 4 checks, 0 failed, 0 s\n$")

    def test_what_is_refused(self):
        self.assert_fails(run_with_plugin("selftest", "--operators", "softmax,soft"), USAGE, "--operators", "'soft'")
        self.assert_fails(run_with_plugin("selftest", "--operators", "gpt2_step"), USAGE, "except gpt2_step")
        missing = run("selftest", "--operators", "fused_logprob", "--plugin", BAD_PLUGIN)
        self.assert_fails(missing, PLUGIN_ERROR, "warpfuse::fused_logprob")


if __name__ == "__main__":
    unittest.main()
