"""scripts/report.py on made-up runs: a whole page, targets and plots.

python test_report.py [unittest options]; with WARPFUSE_UPDATE=1 the golden page is written anew.
"""

import contextlib
import io
import json
import os
import unittest
import xml.etree.ElementTree
from pathlib import Path

import made_up_runs as made_up
from report_case import ReportCase

from report.ncu import READ, WRITTEN, command, count
from report.run import ReportError

GOLDEN = Path(__file__).with_name("report_golden.md")
SOFTMAX = {"operator": "softmax", "shape": [1024, 8192], "dtype": "float32", "directions": ["forward"]}
LIGER = {k: v for k, v in SOFTMAX.items() if k != "directions"} | {"timing": "event"}


class Pages(ReportCase):
    def test_a_whole_page(self):
        best = LIGER | {"forward": {"us": 18.4, "peer": "Liger"}}
        share = made_up.target("share", 0.95, **SOFTMAX)
        rate = made_up.target("tokens_per_s", 2800, model="distilgpt2", batch=1)
        rule = made_up.rule("share", 0.9, [33, 64], dtype=["float32", "float16"])
        self.write(made_up.peers([share], [rate], [best], [rule]), "peers.json")
        self.write(made_up.bench([made_up.row((1024, 8192), Triton=0.7)]), "nvidia-h200-peers.json")
        self.write(made_up.generation(), "nvidia-h200-generate.json")
        self.write(made_up.hugging_face(), "nvidia-h200-generate-peers.json")
        page = self.page()
        if os.environ.get("WARPFUSE_UPDATE"):
            GOLDEN.write_text(page, encoding="utf-8")
        self.maxDiff = None
        self.assertEqual(page, GOLDEN.read_text(encoding="utf-8"))

    def test_the_table_of_decode_steps(self):
        self.write(made_up.generation(), "nvidia-h200-steps.json")
        self.write(made_up.hugging_face(), "nvidia-h200-steps-peers.json")
        path = self.docs / "operators" / "decode.md"
        path.parent.mkdir()
        path.write_text("# Decode\n\n| model | old |\n|---|--:|\n| a | 1 |\n\nafter\n", encoding="utf-8")
        expected = (
            "# Decode\n\n| model | baseline | fused | sdpa | steps | hf static+compile |\n|---|--:|--:|--:|--:|--:|\n"
            "| distilgpt2 float16, batch 1, prompt 32, tokens/s | 2,500 | 2,850 | 2,900 | **5,800** | 580 |\n"
            "| distilgpt2 float16, prefill 8 x 1024, ms | 13.00 | **10.00** | – | – | – |\n\nafter\n"
        )
        for _ in range(2):
            self.report("--docs", self.docs, "decode")
            self.assertEqual(path.read_text(encoding="utf-8"), expected)
        path.write_text("no table\n", encoding="utf-8")
        self.assertIn("expected 1 tables of models, got 0", self.report("--docs", self.docs, "decode", code=2))

    def test_check_sees_an_edit_and_changes_nothing(self):
        page = self.page()
        self.report("--docs", self.docs, "--check")
        (self.folder / "nvidia-h200.md").write_text(page + "more\n", encoding="utf-8")
        said = self.report("--docs", self.docs, "--check", code=1)
        self.assertIn("nvidia-h200.md: not what nvidia-h200.json gives", said)
        self.assertTrue((self.folder / "nvidia-h200.md").read_text(encoding="utf-8").endswith("more\n"))

    def test_check_sees_all_pages(self):
        self.page()
        self.write(made_up.table() | {"device": made_up.GPU | {"name": "Other GPU"}}, "other-gpu.json")
        self.report("--docs", self.docs, "--json", self.folder / "other-gpu.json")
        self.write(made_up.generation(), "nvidia-h200-steps.json")
        (self.docs / "operators").mkdir()
        decode = self.docs / "operators" / "decode.md"
        decode.write_text("\n| model |\n\n", encoding="utf-8")
        self.report("--docs", self.docs, "decode")
        self.report("--docs", self.docs, "--check")
        for page, command in ((self.folder / "other-gpu.md", []), (decode, ["decode"])):
            right, edited = page.read_text(encoding="utf-8"), page.read_text(encoding="utf-8").replace("fused", "Fused")
            page.write_text(edited, encoding="utf-8")
            for words in (["--check"], ["--check", *command], [*command, "--check"]):
                self.assertIn(f"{page.name}: not what", self.report("--docs", self.docs, *words, code=1))
                self.assertEqual(page.read_text(encoding="utf-8"), edited)
            page.write_text(right, encoding="utf-8")

    def test_the_cpu_has_a_page(self):
        self.write(made_up.cpu(), "cpu.json")
        page = self.page(name="cpu.md")
        self.assertIn("# Benchmarks: Made Up CPU", page)
        self.assertIn("default malloc us", page)
        self.assertIn("Not measured in this run.", page)  # generation

    def test_geometric_means_and_the_largest_errors(self):
        rows = [made_up.row((size, 8), share=0.8, aten=0.8 / factor) for size, factor in ((1, 2), (2, 8))]
        rows[1]["variants"][0]["max_error"] = 1.5e-3
        self.write(made_up.bench(rows), "nvidia-h200.json")
        with contextlib.redirect_stderr(io.StringIO()):
            lines = self.page("--allow-partial").splitlines()
        header = next(line for line in lines if line.startswith("| shape")).split(" | ")
        last, foot = (
            dict(zip(header, next(line for line in lines if line.startswith(start)).split(" | "), strict=True))
            for start in ("| 2 x 8", "| geometric mean")
        )
        self.assertEqual((foot["share"], foot["speed-up"], foot["ATen us"]), ("80.0 %", "4.00x", ""))
        self.assertEqual((last["speed-up"], last["largest error"], last["ATen's"]), ("8.00x", "1.5e-03", "2.0e-07"))

    def test_a_wrong_result_is_named_first_and_has_no_time(self):
        raw = made_up.table()
        wrong = {"name": "warpfuse", "status": "wrong", "reason": "error 1"}
        raw["rows"][0]["variants"][0] = wrong
        self.write(raw, "nvidia-h200.json")
        self.write(made_up.peers([made_up.target("share", 0.1, **SOFTMAX)]), "peers.json")
        page = self.page()
        self.assertIn("**Wrong results, not timed: warpfuse on 1024 x 8192 float32 forward.**", page)
        self.assertIn("0 of 1 targets are met.", page)
        self.assertIn("no result", page)

    def test_runs_of_older_names(self):
        raw = made_up.table()
        raw["rows"][0]["variants"][1] = {"name": "aten", "status": "refused", "reason": "old"}
        self.write(raw, "nvidia-h200.json")
        self.assertIn("| unsupported<br>", self.page())


class Targets(ReportCase):
    def test_each_measure_at_its_limit(self):
        # floor 15.753 us: warpfuse 17.504, ATen 35.008, copy 17.253, by event 20.504, empty kernel 1.6.
        best = LIGER | {"forward": {"us": 30.756, "peer": "Liger"}}
        for measure, met, missed, end in (
            ("share", 0.9, 0.901, "at_least"),
            ("copy_ratio", 0.985, 0.987, "at_least"),
            ("us", 17.6, 17.4, "at_most"),
            ("extra_bytes", 1, None, "at_most"),
            ("empty_kernels", 11, 10.9, "at_most"),
            ("peer_speed_up", 1.499, 1.501, "at_least"),  # by event, as the peer's time was taken
            ("aten_speed_up", 2, 2.001, "at_least"),
        ):
            limits = [limit for limit in (met, missed) if limit]
            targets = [made_up.target(measure, limit, end, **SOFTMAX) for limit in limits]
            self.write(made_up.peers(targets, best=[best]), "peers.json")
            self.assertIn(f"1 of {len(limits)} targets are met.", self.page(), measure)

    def test_the_operators_with_dropout_against_softmax_or_linear_alone(self):
        where = {"operator": "dropout_softmax", "directions": ["forward"]}
        targets = [made_up.target("over_alone", limit, "at_most", **where) for limit in (1.11, 1.09)]
        where = {"operator": "linear_dropout_softmax", "directions": ["both"]}
        targets += [made_up.target("us_on_top", limit, "at_most", **where) for limit in (1, 0.5)]
        self.write(made_up.peers(targets), "peers.json")
        page = self.page()
        self.assertIn("3 of 4 targets are met.", page)  # the linear alone is slower than ours
        self.assertIn("| at most 1.09x softmax alone | 1.1 |", page)

    def test_generation(self):
        works = {"model": "distilgpt2", "dtype": "float16", "batch": 1, "prompt": 32}
        limits = [("tokens_per_s", 2850), ("over_baseline", 1.14), ("over_compiled", 4.91), ("floor_share", 0.25)]
        targets = [made_up.target(measure, limit, **works) for measure, limit in limits]
        targets.append(made_up.target("host_us", 9.4, "at_most", **works))
        targets.append(made_up.target("prefill_over_baseline", 1.31, model="distilgpt2"))
        targets.append(made_up.target("tokens_per_s", 1, model="gpt2"))
        self.write(made_up.peers(generate=targets), "peers.json")
        self.write(made_up.generation(), "nvidia-h200-generate.json")
        self.write(made_up.hugging_face(), "nvidia-h200-generate-peers.json")
        page = self.page()
        self.assertIn("4 of 6 targets are met.", page)
        self.assertRegex(page, r"\| gpt2 \| all .* not measured \|")

    def test_other_gpus_have_none(self):
        self.write(made_up.bench(made_up.table()["rows"], made_up.GPU | {"name": "NVIDIA H100"}), "nvidia-h200.json")
        self.write(made_up.peers([made_up.target("share", 0.1, **SOFTMAX)]), "peers.json")
        self.assertIn("No targets are set for this device.", self.page())

    def test_a_target_without_its_row_is_named(self):
        self.write(made_up.peers([made_up.target("share", 0.1, **SOFTMAX | {"shape": [3, 5]})]), "peers.json")
        self.assertIn("Not measured: 3 x 5 float32 forward.", self.page())


class Plots(ReportCase):
    PLOTS = True

    def test_plots_are_images_and_the_same_again(self):
        self.write(made_up.generation(), "nvidia-h200-generate.json")
        self.page()
        images = {path.name: path.read_bytes() for path in (self.docs / "images").iterdir()}
        self.assertEqual(set(images), {"share.svg", "ladder.svg", "roofline.svg", "generate.svg"})
        self.page()
        for name, image in images.items():
            self.assertEqual((self.docs / "images" / name).read_bytes(), image, name)
            words = " ".join(xml.etree.ElementTree.fromstring(image).itertext())
            self.assertIn("NVIDIA H200", words, name)

    def test_a_run_without_their_rows_is_refused(self):
        raw = made_up.table()
        self.write(raw | {"rows": raw["rows"][4:]}, "nvidia-h200.json")
        self.assertIn("no forward row of 1024 x 8192", self.report("--docs", self.docs, code=2))

    def test_a_partial_run_on_request(self):
        raw = made_up.table() | {"complete": False}
        raw["rows"] = raw["rows"][:4]
        self.write(raw, "nvidia-h200.json")
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertIn("Not measured in this run.", self.page("--allow-partial"))
        self.assertFalse((self.docs / "images" / "share.svg").exists(), errors.getvalue())


class Traffic(ReportCase):
    TABLE = f'noise\n"ID","Kernel Name","{READ}","{WRITTEN}"\n"","","byte","byte"\n"0","a","1,000","10"\n"1","b","500","20"\n'

    def program(self, text, code=0):
        path = self.docs / "ncu"
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\nexit {code}\n", encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def test_all_kernels_of_a_call(self):
        counted = {"dram_read_bytes": 1500.0, "dram_write_bytes": 30.0, "kernels": 2}
        self.assertEqual(count([self.program(self.TABLE)]), counted)

    def test_what_a_profiler_says_is_passed_on(self):
        for text, code, said in (
            ("==ERROR== no permission\n", 1, "no permission"),
            ("nothing\n", 0, "no kernel was profiled"),
            ("last words\n", 3, "exit code 3: last words"),
            (self.TABLE.replace('"byte"', '"Kbyte"'), 0, "expected the unit byte"),
        ):
            with self.assertRaisesRegex(ReportError, said):
                count([self.program(text, code)])

    def test_counts_are_put_into_the_file(self):
        path = self.folder / "nvidia-h200.json"
        with contextlib.redirect_stderr(io.StringIO()):
            self.report("traffic", "--json", path, "--host", "warpfuse", "--ncu", self.program(self.TABLE))
        row = json.loads(path.read_text(encoding="utf-8"))["rows"][0]
        self.assertEqual([entry["variant"] for entry in row["traffic"]], ["warpfuse", "aten"])
        call = command("ncu", Path("warpfuse"), ["scaled_masked_softmax", "1x2", "float32", "causal"], "chain")
        self.assertEqual(call[-2:], ["--mask", "causal"])


if __name__ == "__main__":
    unittest.main()
