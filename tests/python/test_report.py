"""scripts/report.py on made-up benchmark files: tables, figures to reach, the document, bad input.

python test_report.py [unittest options]
"""

import copy
import json
import unittest

import synthetic_bench as made_up

# First, since it makes the package report importable.
from report_case import SHIPPED_PEERS, ReportCase, best, peers, plain, target

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
        self.assertTrue(line["warpfuse us"].startswith(f"{floor / 0.8:.1f} ("), line)
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

    def test_wrong_and_refused_variants(self):
        bench = plain()
        bench["rows"][0]["variants"][0] |= {
            "status": "wrong",
            "reason": "error 1 where 0.1 is allowed",
        }
        self.put_gpu(bench)
        self.put("docs/benchmarks/peers.json", peers([target()]))
        line = self.cells("softmax", "1024 x 8192")
        self.assertEqual(line["warpfuse us"], "**wrong**")
        self.assertEqual(line["figure"], "✗ 90 %")
        self.assertIn(
            "Wrong results, not timed: warpfuse on 1024 x 8192 float32 forward",
            self.block("gpu-figures"),
        )
        self.assertIn("0 of 1 figures", self.block("gpu-figures"))

    def test_seed_table_has_each_variant_and_its_launch(self):
        self.put_whole()
        line = self.cells("seed", "1024 x 8192", "float32", "stream")
        self.assertEqual(
            (line["tier"].split("<br>")[0], line["blocks / warps an SM"].split("<br>")[0]),
            ("stream", "5 / 40"),
        )
        self.assertEqual(self.cells("seed", "warp")["p50 us"].split("<br>")[0], "refused")
        self.assertTrue(self.cells("seed", "[1, 1024, 1024] padding", "ATen chain"))

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
        self.assertEqual((line["speed-up"], line["figure"]), ("2.80x", "✗ 3x the chain"))
        self.assertEqual(self.cells("cpu", "1024 x 8192")["figure"], "✓ 1x ATen<br>✓ 1x ATen")
        self.assertIn("Made Up CPU", self.block("cpu-setup"))


class Figures(ReportCase):
    def mark(self, bench, targets, best_peers=()):
        self.put_gpu(bench)
        self.put("docs/benchmarks/peers.json", peers(targets, best_peers))
        return self.cells("softmax", "1024 x 8192").get("figure")

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
        self.assertIn("1 of 1 figures", text)
        self.assertIn("Not measured: 1024 x 8192 float32 backward; 7 x 9 float32 forward.", text)

    def test_another_gpu_has_neither_figures_nor_peers(self):
        bench = plain()
        bench["device"]["name"] = "NVIDIA Other"
        self.assertIsNone(self.mark(bench, [target()], [best(18)]))
        self.assertIn("No figures are set", self.block("gpu-figures"))

    def test_the_shipped_file(self):
        self.put_whole()
        self.assertEqual(
            self.cells("softmax", "1024 x 8192", "float32")["best peer us"],
            "18.4 Liger, graph<br>26.9 Triton tutorial, graph",
        )
        shipped = json.loads(SHIPPED_PEERS.read_text(encoding="utf-8"))
        used = {entry[d]["peer"] for entry in shipped["peers"] for d in ("forward", "backward")}
        self.assertEqual(used, set(shipped["versions"]))


class Documents(ReportCase):
    def test_written_once_then_unchanged(self):
        self.put_whole()
        first = self.succeed().stdout.split()
        self.assertEqual(len(first), 4)
        self.assertEqual(self.succeed().stdout, "")
        self.succeed("--check")
        text = self.document.read_text(encoding="utf-8")
        self.assertTrue(text.startswith("# Before\n") and text.endswith("\n\nAfter\n"))

    def test_edits_by_hand_are_found(self):
        self.put_whole()
        self.succeed()
        for path in (self.document, *(self.docs / "images").iterdir()):
            with self.subTest(path.name):
                whole = path.read_bytes()
                # A digit of a figure; the document's own text may change.
                place = whole.index(b"4.26 TB/s")
                path.write_bytes(whole[:place] + b"5" + whole[place + 1 :])
                self.fail_with(path.name, "--check", code=1)
                path.write_bytes(whole)
        self.document.write_text(self.document.read_text().replace("Before", "Edited"))
        self.succeed("--check")

    def test_check_writes_nothing(self):
        self.put_whole()
        before = self.document.read_bytes()
        self.assertEqual(self.run_report("--check").returncode, 1)
        self.assertEqual(self.document.read_bytes(), before)
        self.assertFalse((self.docs / "images").exists())

    def test_markers(self):
        self.put_whole()
        whole = self.document.read_text()
        softmax = self.markers["softmax"]
        begin, end = softmax.split("\n")
        for edited, message in (
            (whole.replace(softmax, ""), "no place for the block softmax"),
            (whole.replace(end, ""), "softmax has no partner"),
            (whole.replace(softmax, f"{end}\n{begin}"), "has no partner"),
            (whole.replace(end, self.markers["seed"] + end), "seed has no partner"),
            (whole + softmax, "softmax is there twice"),
            (whole + softmax.replace("softmax", "other"), "no generated block other"),
        ):
            with self.subTest(message):
                self.document.write_text(edited)
                self.fail_with(message)

    def test_another_device_keeps_its_block(self):
        self.put_whole()
        self.succeed()
        cpu = self.block("cpu")
        (self.docs / "benchmarks" / "cpu.json").unlink()
        self.assertEqual(self.block("cpu"), cpu)

    def test_a_preset_that_is_missing(self):
        self.put_gpu(made_up.table())
        self.fail_with("no rows for: seed")
        done = self.succeed("--allow-partial")
        self.assertIn("share.svg is left as it is", done.stderr)
        self.assertEqual(self.block("seed"), "Not measured in this run.")


class Input(ReportCase):
    def rejects(self, message, **fields):
        bench = plain() | fields
        self.put_gpu(bench)
        self.fail_with(message, "--allow-partial")

    def test_files(self):
        self.fail_with("nvidia-h200.json: cannot be read")
        self.put_gpu("{")
        self.fail_with("no JSON")
        self.put_gpu("[]")
        self.fail_with("expected an object")
        self.put_gpu(made_up.cpu())
        self.fail_with("expected cuda, got cpu")
        self.put_gpu(plain())
        self.document.unlink()
        self.fail_with("performance.md: cannot be read", "--allow-partial")

    def test_usage(self):
        self.fail_with("unrecognized arguments: --sing", "--sing")
        self.fail_with("expected PRESET=FILE, got 'file'", "merge", "--folder", self.folder, "file")
        self.fail_with("--host", "traffic", "--json", "file")

    def test_format_and_completeness(self):
        self.rejects("format: expected warpfuse-bench-1, got other", format="other")
        self.put_gpu(plain() | {"complete": False})
        self.fail_with("the run was not completed")
        self.succeed("--allow-partial")

    def test_fields(self):
        self.rejects("no rows", rows=[])
        self.rejects(
            "large_copy: gb_per_s: expected a number above 0, got 0",
            large_copy={"bytes": 1, "gb_per_s": 0},
        )
        self.rejects("rows[0]: expected an object", rows=[1])
        self.rejects("is there twice", rows=plain()["rows"] * 2)
        for path, value, message in (
            (("floor_us",), "fast", "rows[0]: floor_us: expected a number, got 'fast'"),
            (("shape",), [0], "rows[0]: shape: expected sizes above 0"),
            (("dim",), 2, "rows[0]: dim: 2 is no dimension"),
            (("direction",), "up", "rows[0]: direction: expected forward or backward, got up"),
            (("variants", 0, "p50_us"), None, "rows[0]: variants[0]: p50_us is missing"),
            (("variants", 0, "p50_us"), True, "rows[0]: variants[0]: p50_us: expected a number"),
            (("variants", 0, "status"), "odd", "status: expected ok or refused or wrong, got odd"),
            (("variants", 0, "launches", 0, "grid"), "x", "launches[0]: grid: expected an integer"),
        ):
            with self.subTest(message):
                rows = copy.deepcopy(plain()["rows"])
                *parents, name = path
                at = rows[0]
                for step in parents:
                    at = at[step]
                at[name] = value
                self.rejects(message, rows=rows)

    def test_peers(self):
        self.put_gpu(plain())
        self.put("docs/benchmarks/peers.json", peers([target("height")]))
        self.fail_with("targets[0]: measure: expected share", "--allow-partial")


if __name__ == "__main__":
    unittest.main()
