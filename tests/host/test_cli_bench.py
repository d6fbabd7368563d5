"""warpfuse bench on the CPU with tiny shapes: its files, checks, errors and the end by Ctrl-C."""

import csv
import json
import os
import time
import unittest

from host_program import DEVICE_ERROR, PLUGIN_ERROR, USAGE, HostTestCase, folder, gpu_names, results, run_with_plugin, start

ALGORITHM_LIBRARY = os.environ["WARPFUSE_ALGORITHM_LIBRARY"]
ROW_KEYS = ("operator", "direction", "shape", "dim", "dtype", "mask")

os.environ["OMP_NUM_THREADS"] = "1"  # threads that wait for each other are slow beside other work


def bench(*arguments, **options):
    return run_with_plugin("bench", *arguments, "--device", "cpu", "--quick", **options)


def measured(*arguments):
    """The results file of a run."""
    path = folder / "measured.json"
    HostTestCase.assert_ok(bench(*arguments, "--json", path))
    return results(path)


def names_of(row):
    return [variant["name"] for variant in row["variants"]]


def copy_with(document, name, change):
    """A copy of a results file in which `change` was called with each plugin variant."""
    document = json.loads(json.dumps(document))
    for row in document["rows"]:
        for variant in row["variants"]:
            if variant["name"] == "warpfuse":
                change(variant)
    path = folder / name
    path.write_text(json.dumps(document))
    return path


class Measuring(HostTestCase):
    @classmethod
    def setUpClass(cls):
        masks = "none,causal,padding,boolean,additive,positions"
        cls.result = cls.assert_ok(bench(
            "all", "--shapes", "2x3x5x17,40x33@0", "--mask", masks, "--dtype", "float32,bfloat16", "--backward",
            "--algorithms", "all", "--json", folder / "all.json", "--csv", folder / "all.csv",
        ))  # fmt: skip
        cls.document = results(folder / "all.json")

    def test_document(self):
        document = self.document
        self.assert_head(document, "warpfuse-bench-1")
        self.assertIn("--mask none,causal,", document["command"])
        # 2 dtypes x 2 directions of softmax and log_softmax on both shapes, and twice 6 masks on the first;
        # three forms of fused_logprob on the first, with both directions in one call too, and sample_tokens; two
        # operators with dropout on both.
        self.assertEqual(len(document["rows"]), 2 * 2 * (2 + 2 + 6 + 6) + 2 * 3 * 3 + 2 + 2 * 2 * (2 + 2))
        keys = {tuple(str(row[name]) for name in ROW_KEYS) for row in document["rows"]}
        self.assertEqual(len(keys), len(document["rows"]))

    def test_every_variant_is_right(self):
        for row in self.document["rows"]:
            names = ["warpfuse", "chain" if row["operator"] == "scaled_masked_softmax" else "aten"]
            if row["operator"].startswith("fused_logprob"):
                in_place = [] if row["direction"] == "forward" else ["in_place"]
                loss = ["cross_entropy"] if row["operator"] == "fused_logprob" else []
                names = ["warpfuse", *in_place, "aten", *loss]
            elif "dropout" in row["operator"]:
                names = ["warpfuse", "aten", "softmax"]
            elif row["operator"] in ("softmax", "log_softmax") and row["direction"] == "forward":
                names += ["naive", "vector"]
            self.assertEqual(names_of(row), names)
            for variant in row["variants"]:
                self.assertEqual(variant["status"], "ok", variant)
                self.assertLess(variant["max_error"], 0.05)

    def test_figures_follow_from_their_parts(self):
        copy = self.document["large_copy"]
        self.assertAlmostEqual(copy["gb_per_s"], copy["bytes"] / copy["p50_us"] / 1e3, places=6)
        for row in self.document["rows"]:
            floor = row["least_bytes"] / copy["bytes"] * copy["p50_us"]
            self.assertAlmostEqual(row["floor_us"] / floor, 1, places=9)
            self.assertGreaterEqual(row["unfused_bytes"], row["fused_bytes"])
            lengths = row["shape"][0] if row["mask"] == "padding" else 0
            self.assertEqual(len(row.get("key_lengths", [])), lengths)
            for variant in row["variants"]:
                p50 = variant["p50_us"]
                self.assertLessEqual(variant["p5_us"], p50)
                self.assertLessEqual(p50, variant["p95_us"])
                self.assertGreater(variant["default_malloc_p50_us"], 0)
                self.assertAlmostEqual(variant["share"] * p50 / floor, 1, places=9)
                self.assertAlmostEqual(variant["copy_ratio"] * p50 / row["same_size_copy"]["p50_us"], 1, places=9)
                self.assertAlmostEqual(variant["gb_per_s"] * p50 * 1e3 / row["least_bytes"], 1, places=9)
                peer = next(v for v in row["variants"] if v["name"] in ("aten", "chain"))
                self.assertAlmostEqual(variant["speedup"] * p50 / peer["p50_us"], 1, places=9)

    def test_csv_holds_the_same(self):
        with open(folder / "all.csv", newline="") as file:
            lines = list(csv.DictReader(file))
        variants = [(row, variant) for row in self.document["rows"] for variant in row["variants"]]
        self.assertEqual(len(lines), len(variants))
        for line, (row, variant) in zip(lines, variants):
            self.assertEqual(line["shape"], "x".join(map(str, row["shape"])))
            self.assertEqual(line["mask"], row["mask"])
            self.assertEqual(line["name"], variant["name"])
            self.assertEqual(float(line["p50_us"]), variant["p50_us"])

    def test_table_has_a_line_for_each_variant(self):
        lines = self.result.stdout.decode().splitlines()
        variants = sum(len(row["variants"]) for row in self.document["rows"])
        self.assertEqual(len([line for line in lines if " warpfuse " in line]), len(self.document["rows"]))
        self.assertEqual(len(lines), 2 + variants + len(self.document["rows"]))  # two heads, the copies
        self.assertEqual(self.result.stderr, b"")

    def test_baseline_holds_and_fails(self):
        rows = ("softmax", "--shapes", "40x33@0")
        easy = copy_with(self.document, "easy.json", lambda variant: variant.update(copy_ratio=1e-9))
        hard = copy_with(self.document, "hard.json", lambda variant: variant.update(copy_ratio=1e9))
        self.assertRegex(self.said(bench(*rows, "--baseline", easy)), r"(?m)^baseline: holds, 1 rows compared, limit 0\.95$")
        text = self.assert_check_fails(bench(*rows, "--baseline", hard, "--fail-under", "0.5"))
        self.assertRegex(text, r"(?m) softmax forward 40x33@0 float32 none  BELOW$")
        text = self.said(bench("softmax", "--shapes", "40x33@0,3x3", "--baseline", easy))
        self.assertRegex(text, r"(?m) softmax forward 3x3 float32 none  not in the baseline$")

    def test_baseline_without_a_common_row(self):
        for path in (folder / "all.json", copy_with(self.document, "refused.json", lambda v: v.update(status="unsupported"))):
            shape = "3x3" if path.name == "all.json" else "40x33@0"
            self.assert_fails(bench("softmax", "--shapes", shape, "--baseline", path), USAGE, "--baseline", "found none")


class Algorithms(HostTestCase):
    def test_chosen_by_name(self):  # Measuring asks for all
        for arguments, names in (((), []), (("--algorithms", "none"), []), (("--algorithms", "vector"), ["vector"])):
            (row,) = measured("softmax", "--shapes", "16x16", *arguments)["rows"]
            self.assertEqual(names_of(row), ["warpfuse", "aten", *names])


class Deformable(HostTestCase):
    SHAPE = ("--shapes", "2x39x3x8x2/6x4/3x5")

    def test_both_passes_beside_grid_sample(self):
        path = folder / "deform.json"
        dtypes = ("--dtype", "float32,float16,bfloat16,float64")
        files = ("--json", path, "--csv", folder / "deform.csv")
        table = self.said(bench("ms_deform_attn", *self.SHAPE, *dtypes, "--backward", "--warm", *files))
        document = results(path)
        self.assertIn("on the same inputs", document["timing"]["wall"])
        self.assertEqual(len(document["rows"]), 4 * 2)
        for row in document["rows"]:
            self.assertEqual((row["shape"], row["levels"]), ([2, 39, 3, 8, 2], [[6, 4], [3, 5]]))
            self.assertEqual(names_of(row), ["warpfuse", "aten"])
            self.assertEqual({variant["status"] for variant in row["variants"]}, {"ok"}, row)
        with open(folder / "deform.csv", newline="") as file:
            self.assertEqual({line["shape"] for line in csv.DictReader(file)}, {self.SHAPE[1]})
        self.assertRegex(table, rf"(?m)^ms_deform_attn +backward {self.SHAPE[1]} float16 +none +warpfuse ")
        other = "2x39x3x8x2/6x4/5x3"  # the same sizes, with other levels
        shapes = ("--shapes", f"{self.SHAPE[1]},{other}")
        text = self.said(bench("ms_deform_attn", *shapes, "--baseline", path, "--fail-under", "0"))
        self.assertIn(f"ms_deform_attn forward {other} float32 none  not in the baseline", text)
        self.assertIn("holds, 1 rows compared", text)

    def test_algorithms_are_those_of_another_library(self):
        names = ("--algorithms", "gather,tma_ws:2:6")
        missing = "warpfuse_lab::ms_deform_attn_algorithm, which no loaded library registers"
        self.assert_fails(bench("ms_deform_attn", *self.SHAPE, *names), PLUGIN_ERROR, missing)
        (row,) = measured("ms_deform_attn", *self.SHAPE, *names, "--op-library", ALGORITHM_LIBRARY)["rows"]
        self.assertEqual(names_of(row), ["warpfuse", "aten", "gather", "tma_ws:2:6"])
        self.assertEqual([variant["status"] for variant in row["variants"]], ["ok", "ok", "ok", "unsupported"])


class Errors(HostTestCase):
    def test_usage(self):
        self.assert_each_fails(bench, USAGE, {
            (): "expected OPERATOR (see --help)",
            ("softmin",): "cached_attention_softmax, linear_argmax or all, got 'softmin'",
            ("linear_dropout_softmax", "--shapes", "4x4x4", "--dtype", "tf32"): "--dtype: tf32 needs a GPU",
            ("softmax", "--algorithms", "warp"): "--algorithms: expected all, none or a list of naive, vector",
            ("fused_logprob", "--shapes", "4x4", "--algorithms", "warp"): "--algorithms: expected all, none, got 'warp'",
            ("softmax", "--fail-under", "0.9"): "--fail-under: needs a --baseline",
            ("softmax", "--fail-under", "x", "--baseline", "f"): "--fail-under: expected a number",
            ("softmax", "--baseline", folder / "none"): "none: cannot be read",
            ("softmax", "--baseline", __file__): "expected a JSON file of format warpfuse-bench-1",
            ("softmax", "--tuning", folder / "none"): "none: cannot be read",
            ("softmax", "surplus"): "'surplus'",
            ("softmax", "--json", folder / "same", "--csv", f"{folder}/./same"): "--csv: expected another file than that of --json",
        })  # fmt: skip

    def test_device(self):
        self.assert_fails(bench("softmax", "--profile", "warpfuse"), DEVICE_ERROR, "--profile: needs a GPU")
        if not gpu_names():
            result = run_with_plugin("bench", "softmax", "--device", "cuda")
            self.assert_fails(result, DEVICE_ERROR, "--device cuda")


class Interrupting(HostTestCase):
    def test_keeps_the_rows_that_are_done(self):
        path = folder / "interrupted.json"
        shapes = ",".join(f"{rows}x64" for rows in range(1, 401))
        with start("bench", "softmax", "--shapes", shapes, "--device", "cpu", "--quick", "--json", path) as process:
            deadline = time.monotonic() + 60
            while len(self.rows(path)) < 3:
                self.assertIsNone(process.poll(), "the program ended by itself")
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            stderr = self.interrupt(process)[1]
        rows = self.rows(path)
        self.assertGreaterEqual(len(rows), 3)
        self.assertLess(len(rows), 400)
        self.assertIs(results(path)["complete"], False)
        self.assertEqual(stderr, f"warpfuse: error: interrupted after {len(rows)} of 400 rows\n")
        self.assertEqual({variant["status"] for row in rows for variant in row["variants"]}, {"ok"})

    @staticmethod
    def rows(path):
        return results(path)["rows"] if os.path.exists(path) else []


class Linear(HostTestCase):
    def test_forward_and_a_training_step_beside_the_linear_alone(self):
        shapes = ("--shapes", "24x40x56,1x8x8", "--dtype", "float32,bfloat16,float64")
        rows = measured("linear_dropout_softmax", *shapes, "--backward")["rows"]
        self.assertEqual(len(rows), 2 * 3 * 2)
        for row in rows:
            others = ["inference"] if row["direction"] == "forward" else []
            self.assertEqual(names_of(row), ["warpfuse", "aten", "linear", *others])
            self.assertEqual({variant["status"] for variant in row["variants"]}, {"ok"}, row)
            self.assertGreater(row["unfused_bytes"], row["fused_bytes"])
            self.assertGreater(row["fused_bytes"], row["least_bytes"])


class Overhead(HostTestCase):
    """bench overhead: the host's part of a call beside ATen's."""

    def test_each_operator_in_each_mode(self):
        path = folder / "overhead.json"
        text = self.said(run_with_plugin("bench", "overhead", "--device", "cpu", "--rounds", "2", "--json", path))
        document = results(path)
        self.assertTrue(document["complete"])
        rows, modes = document["rows"], ["inference", "grad mode", "gradient wanted"]
        calls = [(name, mode) for name in ("softmax", "log_softmax") for mode in modes]
        self.assertEqual([(row["operator"], row["mode"]) for row in rows], calls)
        for row in rows:
            self.assertGreater(row["warpfuse"]["p50_us"], 0)
            self.assertAlmostEqual(row["ratio"], row["warpfuse"]["p50_us"] / row["aten"]["p50_us"])
        self.assertEqual(len(text.splitlines()), 1 + len(rows))

    def test_bad_arguments(self):
        self.assert_fails(run_with_plugin("bench", "overhead", "--rounds", "0"), USAGE, "--rounds")
        self.assert_fails(run_with_plugin("bench", "overhead", "--shapes", "8x8"), USAGE, "shapes")


if __name__ == "__main__":
    unittest.main()
