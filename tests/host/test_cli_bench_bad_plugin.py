"""What warpfuse bench says of a plugin whose results are wrong, that fails, or that lacks operators."""

import unittest

from host_program import BAD_PLUGIN, PLUGIN_ERROR, USAGE, HostTestCase, folder, results, run


class BadPlugin(HostTestCase):
    def bench(self, *arguments):
        path = folder / "bad.json"
        command = ("--shapes", "40x33", "--device", "cpu", "--quick", "--plugin", BAD_PLUGIN, "--json", path)
        result = run("bench", *arguments, *command)
        rows = results(path)["rows"] if path.exists() else []
        return result, {variant["name"]: variant for row in rows for variant in row["variants"]}

    def test_a_wrong_result_is_not_timed(self):
        result, variants = self.bench("log_softmax")
        text = self.assert_check_fails(result)
        self.assertEqual(variants["warpfuse"]["status"], "wrong")
        self.assertGreater(variants["warpfuse"]["max_error"], 1e-4)
        self.assertNotIn("p50_us", variants["warpfuse"])
        self.assertEqual(variants["aten"]["status"], "ok")
        self.assertRegex(text, r"(?m) warpfuse +wrong: error [\de.-]+ where 2e-05 is allowed$")

    def test_dropout_that_forgets_to_scale(self):
        result, variants = self.bench("dropout_softmax")
        self.assert_check_fails(result)
        self.assertEqual([variants[name]["status"] for name in ("warpfuse", "aten", "softmax")], ["wrong", "ok", "ok"])

    def test_a_wrong_algorithm_fails_the_run_and_an_unsupported_one_does_not(self):
        result, variants = self.bench("softmax", "--algorithms", "all")
        self.assert_check_fails(result)
        self.assertEqual([variants[name]["status"] for name in ("warpfuse", "naive", "vector")], ["ok", "wrong", "unsupported"])
        self.assertIn("expected rows of another kind", variants["vector"]["reason"])
        self.assert_ok(self.bench("softmax", "--algorithms", "vector")[0])

    def test_a_failing_operator_is_wrong(self):
        result, variants = self.bench("softmax", "--backward")
        self.assert_check_fails(result)
        self.assertEqual(variants["warpfuse"]["reason"], "no gradient today")

    def test_a_missing_operator(self):
        result, _ = self.bench("scaled_masked_softmax")
        self.assert_fails(result, PLUGIN_ERROR, "warpfuse::scaled_masked_softmax")

    def test_launches_of_one_call(self):
        result, variants = self.bench("softmax")
        self.assertEqual(len(variants["warpfuse"]["launches"]), 1)
        self.assertEqual(variants["warpfuse"]["launches"][0]["warps_per_sm"], 32)
        self.assertNotIn("launches", variants["aten"])
        line = r"(?m)^softmax +forward +40x33 +float32 +none +warpfuse +block/registers +1024 +512 .* 2 +32 of 64$"
        self.assertRegex(result.stdout.decode(), line)

    def test_tuning(self):
        table = folder / "tuning.txt"
        table.write_text("another table")
        self.assert_ok(self.bench("softmax", "--tuning", table)[0])
        self.assertEqual(results(folder / "bad.json")["tuning"], "another table")
        self.assert_ok(self.bench("softmax")[0])
        self.assertEqual(results(folder / "bad.json")["tuning"], "the default table")
        table.write_text("bad table")
        self.assert_fails(self.bench("softmax", "--tuning", table)[0], USAGE, f"--tuning {table}: line 1: expected")


if __name__ == "__main__":
    unittest.main()
