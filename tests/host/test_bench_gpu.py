"""warpfuse bench on a GPU with small shapes: graphs, events, algorithms and the profiler's marks."""

import json

from host_program import USAGE, HostTestCase, folder, main, results, run_with_plugin

MASKS = "none,causal,padding,boolean,additive,positions"


def bench(*arguments):
    return run_with_plugin("bench", *arguments, "--device", "cuda", "--quick")


class Measuring(HostTestCase):
    def document(self, *arguments):
        path = folder / "results.json"
        self.assert_ok(bench(*arguments, "--json", path))
        document = results(path)
        self.assertIs(document["complete"], True)
        return document

    def test_every_variant_is_right_and_timed(self):
        document = self.document(
            "all", "--shapes", "2x3x65x1025,8x33x40@1", "--mask", MASKS, "--dtype", "float32,float16,bfloat16",
            "--backward", "--algorithms", "none",
        )  # fmt: skip
        self.assertEqual(document["device"]["type"], "cuda")
        self.assertGreater(document["device"]["l2_bytes"], 0)
        self.assertTrue(document["versions"]["driver"])
        self.assertGreater(document["empty_kernel_us"], 0)
        self.assertEqual(len(document["rows"]), 3 * 2 * (2 + 2 + 6 + 6) + 3 * 3 * 3 + 3 + 3 * 2 * (2 + 2))
        for row in document["rows"]:
            for variant in row["variants"]:
                self.assertEqual(variant["status"], "ok", variant)
                self.assertLessEqual(variant["p5_us"], variant["p50_us"])
                self.assertGreater(variant["p50_us"], 0.5 * document["empty_kernel_us"])
                self.assertGreater(variant["event_p50_us"], 0)
                self.assertGreaterEqual(variant["kernels"], 1)
            chain = row["variants"][1]
            if row["mask"] not in ("none", "additive") and chain["name"] == "chain":
                self.assertGreaterEqual(chain["kernels"], 3)

    def test_the_plugin_launches_one_kernel_for_a_small_row(self):
        document = self.document("softmax", "--shapes", "64x1024")
        self.assertEqual(document["rows"][0]["variants"][0]["kernels"], 1)

    def test_algorithms_are_right_or_unsupported(self):
        document = self.document("all", "--shapes", "37x1025,3x200000", "--algorithms", "all")
        for row in document["rows"]:
            if row["operator"] not in ("softmax", "log_softmax"):
                continue  # the others have no algorithms by name
            by_name = {variant["name"]: variant for variant in row["variants"]}
            self.assertEqual(set(by_name), {"warpfuse", "aten", "naive", "warp", "block", "cluster", "stream"})
            for variant in by_name.values():
                self.assertIn(variant["status"], ("ok", "unsupported"), variant)
            self.assertEqual(by_name["naive"]["status"], "ok")
            self.assertEqual(by_name["stream"]["status"], "ok")

    def test_fused_logprob_needs_little_memory_beside(self):
        document = self.document("fused_logprob", "--shapes", "512x50257", "--dtype", "bfloat16", "--backward")
        self.assertEqual([row["direction"] for row in document["rows"]], ["forward", "backward", "both"])
        for row in document["rows"]:
            by_name = {variant["name"]: variant for variant in row["variants"]}
            for name in {"warpfuse", "in_place"} & set(by_name):
                self.assertLessEqual(by_name[name]["extra_bytes"], 16 * 512 + 65536, (row["direction"], name))
            self.assertGreaterEqual(by_name["aten"]["extra_bytes"], 512 * 50257 * 2)

    def test_a_linear_with_dropout_and_softmax_needs_no_mask_and_no_second_logits(self):
        """Beside what the matrix products of the library take for themselves."""
        document = self.document(
            "linear_dropout_softmax", "--shapes", "256x512x8192", "--dtype", "float32,tf32,bfloat16", "--backward",
        )  # fmt: skip
        self.assertEqual([row["dtype"] for row in document["rows"][::2]], ["float32", "tf32", "bfloat16"])
        for row in document["rows"]:
            by_name = {variant["name"]: variant for variant in row["variants"]}
            self.assertEqual({variant["status"] for variant in by_name.values()}, {"ok"}, by_name)
            extra = {name: variant["extra_bytes"] for name, variant in by_name.items()}
            logits = 256 * 8192 * (2 if row["dtype"] == "bfloat16" else 4)
            step = row["direction"] == "both"
            self.assertLessEqual(extra["warpfuse"], extra["linear"] + (logits if step else 0) + 4096)
            if step:
                self.assertGreaterEqual(extra["aten"], extra["warpfuse"] + 256 * 8192 - 4096)

    def test_deformable_attention_beside_grid_sample_and_the_classic_kernel(self):
        for warm in ((), ("--warm",)):
            document = self.document(
                "ms_deform_attn", "--shapes", "2x39x3x8x2/6x4/3x5,1x300x8x32x4/25x34/13x17,1x33x4x65x3/9x17",
                "--dtype", "float32,float16,bfloat16,float64", "--backward", *warm,
            )  # fmt: skip
            self.assertEqual("same inputs" in document["timing"]["graph"], bool(warm))
            self.assertEqual(len(document["rows"]), 3 * 4 * 2)
            for row in document["rows"]:
                self.assertEqual([variant["name"] for variant in row["variants"]], ["warpfuse", "aten", "classic"])
                self.assertEqual({variant["status"] for variant in row["variants"]}, {"ok"}, row)

    def test_memory_bounds_the_figures(self):
        """Rows larger than the L2 cannot be faster than memory: a share far above 1 is a wrong time."""
        document = self.document("softmax", "--shapes", "16384x4096", "--dtype", "float32,bfloat16", "--backward")
        for row in document["rows"]:
            for variant in row["variants"]:
                self.assertLess(variant["share"], 1.15, variant)
                self.assertGreater(variant["event_p50_us"], 0.8 * variant["p50_us"])


class Profiling(HostTestCase):
    def test_prints_the_rows_that_ran(self):
        arguments = ("all", "--shapes", "64x1024", "--mask", "causal", "--backward")
        lines = [json.loads(line) for line in self.said(bench(*arguments, "--profile", "warpfuse")).splitlines()]
        keys = [(line["operator"], line["direction"], line["dtype"]) for line in lines]
        self.assertEqual(len(set(keys)), len(keys))
        ran = {(operator, direction) for operator, direction, _ in keys}
        for operator in ("softmax", "scaled_masked_softmax", "dropout_softmax", "fused_logprob"):
            self.assertLessEqual({(operator, "forward"), (operator, "backward")}, ran)
        for line in lines:
            self.assertEqual((line["variant"], line["shape"]), ("warpfuse", [64, 1024]))
            self.assertGreaterEqual(line["kernels"], 1)
        chain = self.said(bench(*arguments, "--profile", "chain")).splitlines()
        self.assertEqual(len(chain), 2)
        self.assert_fails(bench("softmax", "--shapes", "64x64", "--profile", "chain"), USAGE, "--profile: expected")


if __name__ == "__main__":
    main(gpus=1)
