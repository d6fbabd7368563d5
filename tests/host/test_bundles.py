"""The exported bundles through the host program, on the device that WARPFUSE_DEVICE names."""

import json
import math
import os
import pathlib

import torch

import toy_bundles
from host_program import DEVICE, OTHER_DEVICE, PLUGIN, ROOT, HostTestCase, bundles_or_skip, folder, main, results, run, run_with_plugin

VALID = pathlib.Path(os.environ.get("WARPFUSE_SHARED_DATA", "")) / "wikitext-2" / "valid.txt"
VARIANTS = ("baseline", "fused", "sdpa", "steps")


def graph_lines(module, method):
    """The operators of a method in order, each operand an earlier result, a constant or an attribute."""
    graph = getattr(module, method).graph.copy()
    for each in (torch._C._jit_pass_inline, torch._C._jit_pass_dce, torch._C._jit_pass_cse):
        each(graph)
    names = {value.debugName(): f"input {i}" for i, value in enumerate(graph.inputs())}
    lines = []

    def operand(value):
        node = value.node()
        if node.kind() == "prim::Constant":
            return repr(value.toIValue())
        if node.kind() == "prim::GetAttr":
            return f"{operand(node.inputsAt(0))}.{node.s('name')}"
        return names[value.debugName()]

    for node in graph.nodes():
        assert not list(node.blocks()), node
        if node.kind() not in ("prim::Constant", "prim::GetAttr"):
            lines.append(f"{node.kind()}({', '.join(map(operand, node.inputs()))})")
            names |= {value.debugName(): f"{len(lines)}.{i}" for i, value in enumerate(node.outputs())}
    return [*lines, *(f"return {operand(value)}" for value in graph.outputs())]


def on_device(command, *arguments):
    return run_with_plugin(command, *arguments, "--device", DEVICE)


class Bundles(HostTestCase):
    @classmethod
    def setUpClass(cls):
        cls.generated = {variant: cls.generate(variant) for variant in VARIANTS}

    @staticmethod
    def generate(variant, *options):
        return on_device("generate", "-m", bundles / f"{variant}-float32", "-p", "The river", "-n", "48", *options)

    def verify(self, *models):
        return self.said(on_device("verify", *models))

    def test_the_others_agree_with_baseline(self):
        for variant in VARIANTS[1:]:
            with self.subTest(variant):
                self.assertRegex(self.verify(bundles / f"{variant}-float32", bundles / "baseline-float32"), r"(?m)^agree: ")

    def test_modules_that_are_no_language_models(self):
        for name in ("softmax-module", "deformable-detr-module"):
            with self.subTest(name):
                self.verify(bundles.parent / name / "fused-float32", bundles.parent / name / "baseline-float32")

    def test_the_detectors_baseline_rewritten(self):
        detr, out = bundles.parent / "deformable-detr-module", folder / "rewritten-detr"
        routed = "4 of 4 grid_sample chains routed to the plugin, 2 of SDPA left as they are\n"
        text = self.said(run_with_plugin("rewrite", detr / "baseline-float32", out))
        self.assertIn(routed, text)
        self.assertIn(text, (ROOT / "docs" / "rewrite.md").read_text())
        operators = [results(bundle / "bundle.json")["operators"] for bundle in (out, detr / "fused-float32")]
        self.assertEqual(operators[0], operators[1])
        for variant in ("fused", "baseline"):
            self.verify(out, detr / f"{variant}-float32")
        result = self.assert_ok(on_device("verify", *[detr / "baseline-float32"] * 2, "--rewrite"))
        self.assertIn(routed, result.stderr.decode())

    def test_the_detectors_decoder_in_a_cuda_graph(self):
        if DEVICE != "cuda":
            self.skipTest(OTHER_DEVICE)
        torch.ops.load_library(PLUGIN)
        model = torch.jit.load(
            str(bundles.parent / "deformable-detr-module" / "fused-float32" / "model.pt"), map_location="cuda"
        )
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.stream(stream):
            memory = model.encoder(torch.randn(2, 420, 128, device="cuda"))
            for _ in range(3):  # the executor of TorchScript optimises its first calls
                before = model.decoder(memory)
            with torch.cuda.graph(graph, stream=stream):
                captured = model.decoder(memory)
            memory.copy_(memory.roll(1, dims=1))
            graph.replay()
            expected = model.decoder(memory)
        torch.cuda.synchronize()
        # Matrix products of a graph may be another kernel's.
        torch.testing.assert_close(captured, expected, rtol=0, atol=1e-4)
        self.assertGreater((captured - before).abs().max().item(), 1e-2)

    def test_module_that_draws_random_numbers(self):
        modules = bundles.parent / "linear-dropout-softmax-module"
        for mode in ("", "-train"):
            with self.subTest(mode):
                self.verify(modules / f"fused{mode}-float32", modules / f"baseline{mode}-float32")
        # Dropout makes a difference that is seen.
        self.assert_check_fails(on_device("verify", modules / "fused-train-float32", modules / "baseline-float32"))

    def test_all_variants_say_the_same(self):
        texts = [self.assert_ok(self.generated[variant]).stdout for variant in VARIANTS]
        self.assertGreater(len(texts[0].split()), 15)
        for variant, text in zip(VARIANTS, texts):
            self.assertEqual(text, texts[0], variant)

    def test_greedy_steps_need_no_logits(self):
        """steps has a method for the most probable token; with log-probabilities the logits are computed."""
        scored = ("--json", "--logprobs", "2")
        ids = [self.json_of(self.generate(*each))["ids"] for each in (("baseline", *scored), ("steps", *scored), ("steps", "--json"))]
        self.assertEqual(ids, ids[:1] * 3)

    def test_perplexity_is_that_of_atens_chain(self):
        """Every variant on WikiText-2's held-out text, against baseline's logits by log_softmax and gather."""
        if not VALID.exists():
            self.skipTest(f"no {VALID}")
        text = folder / "valid-start.txt"
        text.write_bytes(VALID.read_bytes()[:20_000])
        window, stride = 512, 384
        ids = self.token_ids(text)
        nll = toy_bundles.expected_nll(bundles / "baseline-float32", ids, window, stride)
        expected = math.exp(nll / (len(ids) - 1))
        for variant in VARIANTS:
            with self.subTest(variant):
                options = ("--text", text, "--window", window, "--stride", stride, "--json")
                figures = self.json_of(on_device("perplexity", "-m", bundles / f"{variant}-float32", *options))
                self.assertEqual(figures["tokens"], len(ids) - 1)
                self.assertAlmostEqual(figures["perplexity"] / expected, 1, delta=1e-4)

    def token_ids(self, text):
        line = json.dumps(text.read_text(encoding="utf-8", errors="strict")).encode() + b"\n"
        return self.json_of(run("tokenize", "--tokenizer", bundles / "baseline-float32", "--json", stdin=line))

    def test_the_baseline_rewritten_has_the_graphs_of_the_fused_one(self):
        out = folder / "rewritten"
        self.assert_ok(run_with_plugin("rewrite", bundles / "baseline-float32", out))
        torch.ops.load_library(PLUGIN)
        rewritten, fused = (
            torch.jit.load(str(path / "model.pt")) for path in (out, bundles / "fused-float32")
        )
        for method in ("prefill", "decode", "forward"):
            lines = graph_lines(fused, method)
            self.assertEqual(sum(line.startswith("warpfuse::scaled_masked_softmax") for line in lines), 8)
            self.assertEqual(graph_lines(rewritten, method), lines)

    def test_the_plugin_serves_every_softmax_of_fused_only(self):
        served, calls = self.softmax_calls(self.generated["fused"])
        self.assertGreater(calls, 48)
        self.assertEqual(served, calls)
        for variant in ("baseline", "sdpa"):
            self.assertEqual(self.softmax_calls(self.generated[variant]), (0, calls))


if __name__ == "__main__":
    bundles = bundles_or_skip()
    main()
