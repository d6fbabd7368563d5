"""scripts/report.py on made-up benchmark files: tables, and the figures to reach.

python test_report.py [unittest options]
"""

import json
import unittest

import synthetic_bench as made_up

# First, since it makes the package report importable.
from report_case import SHIPPED_PEERS, ReportCase, best, peers, plain, target

from report.model import DIRECTIONS
from report.numbers import microseconds, percent, times


class Numbers(unittest.TestCase):
    def test_three_digits(self):
        self.assertEqual(
            [microseconds(v) for v in (1.234, 9.999, 99.94, 99.96, 1234.5, None)],
            ["1.23", "10.0", "99.9", "100", "1,234", "–"],
        )

    def test_ratios_are_cut(self):
        self.assertEqual(percent(0.8999), "89.9 %")
        self.assertEqual(percent(0.29), "29.0 %")
        self.assertEqual(times(0.9999), "0.99x")


class Tables(ReportCase):
    def test_both_passes_in_one_line(self):
        forward, backward = made_up.both_ways((1024, 8192), "float32", share=0.8, aten=0.4)
        self.put_gpu(made_up.bench([forward, backward]))
        line = self.cells("softmax", "1024 x 8192")
        self.assertEqual(line["pass"], "forward<br>backward")
        self.assertEqual(line["share"], "80.0 %<br>80.0 %")
        self.assertEqual(line["speed-up"], "2.00x<br>2.00x")
        floor = 2 * 1024 * 8192 * 4 / made_up.COPY / 1e3
        self.assertEqual(line["floor us"], f"{floor:.1f}<br>{floor * 1.5:.1f}")
        ours = floor / 0.8
        self.assertEqual(
            line["warpfuse us"].split("<br>")[0],
            f"{ours:.1f} ({ours * 0.99:.1f}–{ours * 1.02:.1f})",
        )
        self.assertEqual(line["of a copy"].split("<br>")[0], percent((floor + 1.5) / (floor / 0.8)))

    def test_one_pass_alone(self):
        self.put_gpu(plain())
        self.assertEqual(self.cells("softmax", "1024 x 8192")["share"], "92.0 %")

    def test_masked_rows_are_beside_the_chain(self):
        self.put_gpu(made_up.table())
        line = self.cells("masked", "[96, 1024, 1024] causal", "bfloat16")
        self.assertEqual(line["speed-up"], "4.50x<br>4.50x")
        self.assertNotIn("causal", self.block("softmax"))
        self.assertIn("[64, 4096, 64] over dim 1", self.block("softmax"))

    def test_wrong_and_unsupported_variants(self):
        bench = plain()
        bench["rows"][0]["variants"][0] |= {
            "status": "wrong",
            "reason": "error 1 where 0.1 is allowed",
        }
        self.put_gpu(bench)
        self.put("docs/benchmarks/peers.json", peers([target()]))
        line = self.cells("softmax", "1024 x 8192")
        self.assertEqual(line["warpfuse us"], "**wrong**")
        self.assertEqual(line["target"], "✗ 90 %")
        self.assertIn(
            "Wrong results, not timed: warpfuse on 1024 x 8192 float32 forward",
            self.block("gpu-figures"),
        )
        self.assertIn("0 of 1 targets", self.block("gpu-figures"))

    def test_basic_table_has_each_variant_and_its_launch(self):
        self.put_whole()
        line = self.cells("basic", "1024 x 8192", "float32", "stream")
        self.assertEqual(
            (line["tier"].split("<br>")[0], line["blocks / warps an SM"].split("<br>")[0]),
            ("stream", "5 / 40"),
        )
        self.assertEqual(self.cells("basic", "warp")["p50 us"].split("<br>")[0], "unsupported")
        self.assertTrue(self.cells("basic", "[1, 1024, 1024] padding", "ATen chain"))

    def test_names_of_older_files(self):
        bench = made_up.basic()
        for row in bench["rows"]:
            row["presets"] = ["seed"]
            for variant in row["variants"]:
                if variant["status"] == "unsupported":
                    variant["status"] = "refused"
        self.put_gpu(bench)
        self.assertEqual(self.cells("basic", "warp")["p50 us"].split("<br>")[0], "unsupported")

    def test_launches_name_their_shapes(self):
        self.put_gpu(plain())
        line = self.cells("launches", "block")
        self.assertEqual(
            (line["threads"], line["warps an SM"], line["ran for"]),
            ("256", "40 of 64", "1024 x 8192"),
        )

    def test_traffic(self):
        bench = plain()
        bench["rows"][0]["traffic"] = [
            {"variant": "warpfuse", "dram_read_bytes": 33.6e6, "dram_write_bytes": 1.25e6}
        ]
        bench["traffic_how"] = "By made-up counters."
        self.put_gpu(bench)
        line = self.cells("traffic", "1024 x 8192")
        self.assertEqual((line["least MB"], line["fused, counted"]), ("67.1", "33.6 + 1.2"))
        self.assertNotIn("ATen, counted", line)
        self.assertIn("By made-up counters.", self.block("traffic"))

    def test_setup(self):
        self.put_gpu(plain())
        text = self.block("gpu-setup")
        for part in (
            "2000-01-02",
            "NVIDIA H200",
            "60 MiB L2",
            "commit abc1234",
            "4.26 TB/s",
            "1.60 us",
        ):
            self.assertIn(part, text)

    def test_cpu(self):
        self.put_whole()
        line = self.cells("cpu", "[12, 1024, 1024] causal")
        self.assertEqual((line["speed-up"], line["target"]), ("2.80x", "✗ 3x the chain"))
        self.assertEqual(self.cells("cpu", "1024 x 8192")["target"], "✓ 1x ATen<br>✓ 1x ATen")
        self.assertIn("Made Up CPU", self.block("cpu-setup"))


class Figures(ReportCase):
    def mark(self, bench, targets, best_peers=()):
        self.put_gpu(bench)
        self.put("docs/benchmarks/peers.json", peers(targets, best_peers))
        return self.cells("softmax", "1024 x 8192").get("target")

    def test_share(self):
        self.assertEqual(self.mark(plain(0.901), [target()]), "✓ 90 %")
        self.assertEqual(self.mark(plain(0.899), [target()]), "✗ 90 %")
        self.assertIn("| 89.9 % |", self.block("gpu-figures"))

    def test_ratio_to_the_copy(self):
        floor = 2 * 1024 * 8192 * 4 / made_up.COPY / 1e3
        share = 0.95 * floor / (floor + 1.5)  # then the copy takes 95 % of our time
        wanted = [target("copy_ratio", 0.95)]
        self.assertEqual(self.mark(plain(share * 1.001), wanted), "✓ 95 % of the copy")
        self.assertEqual(self.mark(plain(share * 0.999), wanted), "✗ 95 % of the copy")

    def test_empty_kernels(self):
        wanted = target("empty_kernels")
        wanted["at_most"] = wanted.pop("at_least") + 0.6
        bench = plain(0.92)
        time = bench["rows"][0]["variants"][0]["p50_us"]
        bench["empty_kernel_us"] = time / 1.49
        self.assertEqual(self.mark(bench, [wanted]), "✓ at most 1.5 empty kernels")
        bench["empty_kernel_us"] = time / 1.51
        self.assertEqual(self.mark(bench, [wanted]), "✗ at most 1.5 empty kernels")

    def test_peers_are_compared_by_their_timing(self):
        bench, wanted = plain(0.92), [target("peer_speed_up", 1.0)]
        ours = bench["rows"][0]["variants"][0]
        between = (ours["p50_us"] + ours["event_p50_us"]) / 2
        self.assertEqual(self.mark(bench, wanted, [best(between, "graph")]), "✓ best peer")
        self.assertEqual(self.mark(bench, wanted, [best(between, "event")]), "✗ best peer")

    def test_a_rule_for_every_row(self):
        rule = {
            "device": "cuda",
            "operator": "softmax",
            "directions": ["forward"],
            "measure": "aten_speed_up",
            "at_least": 1.0,
        }
        self.assertEqual(self.mark(plain(0.8, aten=0.81), [rule]), "✗ 1x ATen")

    def test_what_was_not_measured_is_named(self):
        self.mark(plain(), [target(directions=["forward", "backward"]), target(shape=[7, 9])])
        text = self.block("gpu-figures")
        self.assertIn("1 of 1 targets", text)
        self.assertIn("Not measured: 1024 x 8192 float32 backward; 7 x 9 float32 forward.", text)

    def test_another_gpu_has_neither_figures_nor_peers(self):
        bench = plain()
        bench["device"]["name"] = "NVIDIA Other"
        self.assertIsNone(self.mark(bench, [target()], [best(18)]))
        self.assertNotIn("best peer us, other run", self.cells("softmax", "1024 x 8192"))
        self.assertIn("No targets are set", self.block("gpu-figures"))

    def test_the_shipped_file(self):
        self.put_whole()
        self.assertEqual(
            self.cells("softmax", "1024 x 8192", "float32")["best peer us, other run"],
            "18.4 Liger, graph<br>26.9 Triton tutorial, graph",
        )
        shipped = json.loads(SHIPPED_PEERS.read_text(encoding="utf-8"))
        used = {entry[d]["peer"] for entry in shipped["peers"] for d in DIRECTIONS if d in entry}
        self.assertEqual(used, set(shipped["versions"]))


if __name__ == "__main__":
    unittest.main()
