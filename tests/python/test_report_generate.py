"""scripts/report.py with runs of `warpfuse bench generate` and of its peers.

python test_report_generate.py [unittest options]
"""

import json
import unittest

import synthetic_bench as benches
import synthetic_generate as made_up

# First, since it makes the package report importable.
from report_case import SHIPPED_PEERS, ReportCase, peers, plain

GPU, HF = "nvidia-h200-generate.json", "nvidia-h200-generate-peers.json"
CPU = "cpu-generate.json"
ABSENT = "Not measured in this run."


def figure(measure, limit, device="cuda", end="at_least", **where):
    return {"device": device, "measure": measure, end: limit, **where}


class GenerateCase(ReportCase):
    def setUp(self):
        super().setUp()
        self.put_gpu(plain())

    def put_run(self, name, run):
        return self.put(f"docs/benchmarks/{name}", run)

    def put_all(self):
        self.put_run(GPU, made_up.generation())
        self.put_run(HF, made_up.hf())
        self.put_run(CPU, made_up.cpu())
        self.put("docs/benchmarks/cpu.json", benches.cpu())


class Tables(GenerateCase):
    def test_an_interrupted_run_is_refused(self):
        self.put_all()
        self.put_run(GPU, made_up.generation() | {"complete": False})
        self.fail_with("nvidia-h200-generate.json: the run is incomplete")
        self.succeed("--allow-partial")

    def test_speed_beside_hugging_face(self):
        self.put_all()
        line = self.cells("generate", "distilgpt2", "32")
        self.assertEqual(line["fused"], "2,850 (2,793–2,878)")
        self.assertEqual(line["fused, no graph"], "1,140 (1,117–1,151)")
        self.assertEqual(line["hf static+compile"], "580 (568–585)")
        self.assertEqual(line["fused / baseline"], "1.14x")
        self.assertEqual(line["fused / fastest HF"], "1.50x hf compiled loop")
        line = self.cells("generate", "512")
        self.assertEqual((line["hf static+compile"], line["fused, no graph"]), ("–", "–"))
        self.assertIn(
            "Not measured: hf static+compile on distilgpt2 float16, batch 32, prompt 512 (time).",
            self.block("generate"),
        )

    def test_a_prompt_that_is_known_by_its_text(self):
        rows = [
            made_up.row(variant, prompt=4, **more) | {"text": text}
            for text, more in (("The fox", {}), ("A fox", {"rate": 1000.0}))
            for variant in ("baseline", "fused")
        ]
        self.put_run(GPU, made_up.generation(rows))
        self.assertEqual(self.cells("generate", "“The fox”")["fused / baseline"], "1.14x")
        self.assertEqual(self.cells("generate", "“A fox”")["fused / baseline"], "1.00x")

    def test_without_peers(self):
        self.put_run(GPU, made_up.generation())
        line = self.cells("generate", "distilgpt2")
        self.assertEqual(line["fused / baseline"], "1.14x")
        self.assertFalse([name for name in line if "hf" in name.lower()])

    def test_steps(self):
        rows = [made_up.row("fused"), made_up.row("fused", graph=False)]
        rows[1]["capture_note"] = "an operator synchronizes"
        self.put_run(GPU, made_up.generation(rows))
        line = self.cells("generate-steps", "yes")
        self.assertEqual((line["p50 us"], line["p5"], line["p95"]), ("351", "347", "386"))
        self.assertEqual((line["floor us"], line["floor share"]), ("40.0", "11.3 %"))
        self.assertEqual((line["kernels"], line["empty graph us"]), ("100", "120"))
        self.assertEqual((line["softmax"], line["host us"]), ("12.5 %", "9.50"))
        self.assertIn(
            "Graphs: distilgpt2 float16, batch 1, prompt 32 fused: an operator synchronizes.",
            self.block("generate-steps"),
        )

    def test_prompts_and_accuracy(self):
        self.put_all()
        line = self.cells("generate-prefill", "1024")
        self.assertEqual(
            (line["fused ms"], line["fused / baseline"]), ("10.0 (9.80–10.1)", "1.30x")
        )
        line = self.cells("generate-accuracy", "fused")
        self.assertEqual((line["within"], line["first other token"]), ("yes", "none"))
        line = self.cells("generate-accuracy", "sdpa")
        self.assertEqual((line["within"], line["first other token"]), ("**no**", "17"))

    def test_setup(self):
        self.put_all()
        text = self.block("generate-setup")
        for part in ("4.10 TB/s", "wikitext-2 valid", "transformers 5.0.0", "hf sdpa as it is"):
            self.assertIn(part, text)

    def test_a_cpu_has_no_graphs(self):
        self.put_all()
        text = self.block("generate-cpu")
        self.assertIn("Made Up CPU", text)
        self.assertNotIn("no graph", text)
        self.assertNotIn("generate.svg", text)
        self.assertIn("| 80 % of the floor | 85.0 % | ✓ |", self.shipped("generate-cpu"))

    def shipped(self, name):
        self.put("docs/benchmarks/peers.json", SHIPPED_PEERS.read_text(encoding="utf-8"))
        return self.block(name)

    def test_what_is_absent(self):
        self.put("docs/benchmarks/cpu.json", benches.cpu())
        for name in ("generate", "generate-figures", "generate-cpu"):
            self.assertEqual(self.block(name), ABSENT)
        self.put_run(GPU, made_up.generation(prefill=[]))
        self.assertEqual(self.block("generate-prefill"), ABSENT)
        self.assertNotEqual(self.block("generate"), ABSENT)

    def test_the_plot(self):
        self.succeed("--allow-partial")
        path = self.docs / "images" / "generate.svg"
        self.assertFalse(path.exists())
        self.put_run(GPU, made_up.generation([made_up.row("fused", model="gpt2")]))
        self.assertNotIn("generate.svg", self.block("generate"))
        self.assertFalse(path.exists())
        rows = [made_up.row(name) for name in made_up.RATES]
        rows.append(made_up.row("fused", dtype="float32", graph=False))
        self.put_run(GPU, made_up.generation(rows))
        self.put_run(HF, made_up.hf())
        self.assertIn("](../images/generate.svg)", self.block("generate"))
        text = path.read_text(encoding="utf-8")
        for part in ("2,850", "hf compiled loop", "fused, no graph", "not measured", "float32"):
            self.assertIn(part, text)


class Figures(GenerateCase):
    def judged(self, *figures, run=None, hf=None):
        self.put("docs/benchmarks/peers.json", peers([]) | {"generate": list(figures)})
        self.put_run(GPU, run or made_up.generation())
        if hf:
            self.put_run(HF, hf)
        lines = self.block("generate-figures").splitlines()
        return [
            tuple(cell.strip() for cell in line.split("|")[5:8])
            for line in lines
            if line.startswith("| ") and not line.startswith("| model")
        ]

    def test_each_measure(self):
        at = {"model": "distilgpt2", "dtype": "float16", "batch": 1, "prompt": 32}
        found = self.judged(
            figure("tokens_per_s", 2851, **at),
            figure("over_baseline", 1.14, **at),
            figure("over_compiled", 4.92, **at),
            figure("prefill_over_baseline", 1.3, dtype="float16"),
            figure("floor_share", 0.11, **at),
            figure("host_us", 9.5, end="at_most"),
            figure("tokens_per_s", 1, model="gpt2"),
            figure("floor_share", 0.8, device="cpu"),
            hf=made_up.hf(),
        )
        self.assertEqual(
            found,
            [
                ("2,851 tokens/s", "2,850", "✗"),
                ("1.14x the baseline", "1.14x", "✓"),
                ("4.92x hf static+compile", "4.91x", "✗"),
                ("prefill 1.3x the baseline", "1.30x", "✓"),
                ("11 % of the floor", "11.3 %", "✓"),
                ("at most 9.5 us of the host per token", "9.50", "✓"),
                ("1 tokens/s", "–", "not measured"),
            ],
        )
        self.assertIn("4 of 6 targets are met.", self.block("generate-figures"))

    def test_the_worst_of_all_works_counts(self):
        rows = [made_up.row("fused"), made_up.row("fused", batch=32)]
        rows[1]["host_us_per_token"] = 640.0  # of a step of 32 tokens
        found = self.judged(
            figure("host_us", 15, end="at_most"),
            figure("tokens_per_s", 2000),
            run=made_up.generation(rows),
        )
        self.assertEqual([line[1:] for line in found], [("20.0", "✗"), ("2,850", "✓")])

    def test_a_gpu_is_judged_with_graphs(self):
        run = made_up.generation([made_up.row("fused", graph=False)])
        self.assertEqual(self.judged(figure("tokens_per_s", 1), run=run)[0][2], "not measured")

    def test_another_gpu_has_no_figures(self):
        self.judged(figure("tokens_per_s", 1))
        self.put_run(GPU, made_up.generation(device={"type": "cuda", "name": "NVIDIA Other"}))
        self.assertEqual(self.block("generate-figures"), "No targets are set for this device.")


class Joining(GenerateCase):
    def join(self, *runs):
        paths = [self.put(f"part{i}.json", run) for i, run in enumerate(runs)]
        return ("join", "--folder", self.docs / "benchmarks", "--command", "a script", *paths)

    def test_runs_of_a_gpu_and_of_a_cpu(self):
        small = made_up.generation([made_up.row("fused", model="small")], prefill=[], accuracy=[])
        done = self.succeed(*self.join(made_up.generation(), small))
        path = self.docs / "benchmarks" / GPU
        self.assertEqual(done.stdout.strip(), str(path))
        joined = json.loads(path.read_text(encoding="utf-8"))
        self.assertEqual(joined["command"], "a script")
        self.assertEqual(joined["prompts"], made_up.generation()["prompts"])
        self.assertEqual([row["model"] for row in joined["rows"]], ["distilgpt2"] * 9 + ["small"])
        self.assertEqual(len(joined["prefill"]), 3)
        self.assertTrue(self.cells("generate", "small"))
        done = self.succeed(*self.join(made_up.cpu()))
        self.assertEqual(done.stdout.strip(), str(self.docs / "benchmarks" / CPU))

    def test_what_cannot_be_joined(self):
        other = made_up.generation(device={"type": "cuda", "name": "NVIDIA Other"})
        self.fail_with("part1.json: device: not that of", *self.join(made_up.generation(), other))
        self.fail_with("format: expected warpfuse-generate-1", *self.join(plain()))


class Input(GenerateCase):
    def rejects(self, message, name, run):
        path = self.put_run(name, run)
        self.fail_with(message, "--allow-partial")
        path.unlink()

    def test_files(self):
        wrong = made_up.row("fused")
        wrong["tokens_per_s"]["p50"] = 0
        for message, run in (
            ("format: expected warpfuse-generate-1, got warpfuse-bench-1", plain()),
            ("no rows", made_up.generation([])),
            ("rows[0]: tokens_per_s: p50: expected a number above 0", made_up.generation([wrong])),
            (
                "distilgpt2 float16, batch 1, prompt 32 fused with a graph is there twice",
                made_up.generation([made_up.row("fused")] * 2),
            ),
            (
                "prefill: distilgpt2 float16, batch 8, prompt 1024 fused is there twice",
                made_up.generation(prefill=[made_up.prefill("fused", 1.0)] * 2),
            ),
        ):
            with self.subTest(message):
                self.rejects(message, GPU, run)
        self.put_run(GPU, made_up.generation())
        self.rejects("format: expected warpfuse-generate-peers-1", HF, plain())
        self.rejects("hf sdpa is there twice", HF, made_up.hf([made_up.hf_row("hf sdpa")] * 2))
        broken = made_up.hf([made_up.hf_row("hf sdpa") | {"tokens_per_s": None}])
        self.rejects("rows[0]: tokens_per_s is missing", HF, broken)

    def test_figures(self):
        self.put_run(GPU, made_up.generation())
        for message, wanted in (
            ("generate[0]: measure: expected tokens_per_s or", figure("height", 1)),
            ("generate[0]: batch: expected an integer", figure("host_us", 1, batch="all")),
        ):
            self.put("docs/benchmarks/peers.json", peers([]) | {"generate": [wanted]})
            self.fail_with(message, "--allow-partial")

    def test_the_shipped_figures(self):
        self.put_all()
        self.put("docs/benchmarks/peers.json", SHIPPED_PEERS.read_text(encoding="utf-8"))
        shipped = json.loads(SHIPPED_PEERS.read_text(encoding="utf-8"))["generate"]
        text = self.block("generate-figures")
        self.assertIn("6 of 6 targets are met.", text)
        gpu = [entry for entry in shipped if entry["device"] == "cuda"]
        self.assertEqual(len([line for line in text.splitlines() if "|" in line]), 2 + len(gpu))


if __name__ == "__main__":
    unittest.main()
