"""warpfuse perplexity: its figures against ATen's log_softmax and gather, its output and its errors."""

import json
import math
import unittest

import torch

import toy_bundles
from cli_bundles import baseline, copy_of, cycle, fused, half, module, write
from host_program import BAD_PLUGIN, MODEL, PLUGIN_ERROR, USAGE, HostTestCase, folder, run, run_with_plugin, start
from toys import CONTEXT

TEXT = ("The river rises in the hills, é€, and flows through three counties. " * 12).encode() + b"\xff\xc3 end"


def perplexity(bundle, text, *arguments, **options):
    return run_with_plugin("perplexity", "-m", bundle, "--text", text, *arguments, **options)


class Figures(HostTestCase):
    def score(self, *arguments, **options):
        return self.json_of(perplexity(*arguments, "--json", **options))

    def test_equals_log_softmax_and_gather(self):
        text = write("text", TEXT)
        ids = list(TEXT)  # the toy's tokens are the bytes
        for window, stride in ((None, None), (256, 256), (64, 64), (64, 7), (100, 1), (2, 1)):
            options = [] if window is None else ["--window", window, "--stride", stride]
            nll = toy_bundles.expected_nll(baseline, ids, window or CONTEXT, stride or CONTEXT // 2)
            for bundle in (baseline, half, fused):
                with self.subTest(window=window, stride=stride, bundle=bundle.name):
                    result = self.score(bundle, text, *options)
                    self.assertEqual(result["tokens"], len(ids) - 1)
                    self.assertAlmostEqual(result["mean_nll_nats"] / (nll / (len(ids) - 1)), 1, delta=1e-5)
                    self.assertAlmostEqual(result["perplexity"] / math.exp(nll / (len(ids) - 1)), 1, delta=1e-4)
                    self.assertAlmostEqual(result["bits_per_byte"] * math.log(2) * len(ids[1:]) / nll, 1, delta=1e-5)

    def test_is_that_of_hugging_faces_guide_with_one_token_less_a_window(self):
        """Its windows hold the last target too, which no logits are needed of."""
        ids = list(TEXT)
        max_length, stride = 96, 40
        model = torch.jit.load(str(baseline / "model.pt"))
        total, count, previous_end = 0.0, 0, 0
        for begin in range(0, len(ids), stride):
            end = min(begin + max_length, len(ids))
            inputs = torch.tensor([ids[begin:end]])
            labels = inputs.clone()
            labels[:, : -(end - previous_end)] = -100
            cache = toy_bundles.new_cache(end - begin)
            with torch.no_grad():
                logits = model.forward(inputs, torch.arange(end - begin)[None], cache)
            loss = torch.nn.functional.cross_entropy(logits[0, :-1].double(), labels[0, 1:], reduction="none")
            total, count = total + loss.sum().item(), count + int((labels[0, 1:] != -100).sum())
            previous_end = end
            if end == len(ids):
                break
        result = self.score(baseline, write("text", TEXT), "--window", max_length - 1, "--stride", stride)
        self.assertEqual(result["tokens"], count)
        self.assertAlmostEqual(result["mean_nll_nats"] / (total / count), 1, delta=1e-5)

    def test_batches_change_nothing(self):
        text = write("text", TEXT)
        results = [self.score(fused, text, "--window", 48, "--stride", 16, "--batch", b) for b in (1, 3, 1000)]
        for result in results[1:]:
            self.assertEqual(result["tokens"], results[0]["tokens"])
            self.assertAlmostEqual(result["mean_nll_nats"] / results[0]["mean_nll_nats"], 1, delta=1e-6)

    def test_short_texts(self):
        result = self.score(baseline, write("two", b"ab"))
        self.assertEqual((result["tokens"], result["bytes"]), (1, 1))
        nll = toy_bundles.expected_nll(baseline, list(b"ab"), CONTEXT, CONTEXT // 2)
        self.assertAlmostEqual(result["mean_nll_nats"] / nll, 1, delta=1e-5)

    def test_the_special_token_counts_its_bytes(self):
        result = self.score(baseline, write("special", b"a<|endoftext|>b"))
        self.assertEqual((result["tokens"], result["bytes"]), (2, 14))

    def test_text_output(self):
        result = self.assert_ok(perplexity(baseline, write("text", TEXT)))
        self.assertRegex(
            result.stdout.decode(),
            r"\Aperplexity: [\d.]+\nmean negative log-likelihood: [\d.]+ nats per token\n"
            rf"bits per byte: [\d.]+\nscored: {len(TEXT) - 1} tokens, [\d.]+ tokens/s\n\Z",
        )
        self.assertEqual(result.stderr, b"")  # progress is for terminals
        self.assertTrue(self.score(baseline, write("text", TEXT))["complete"])


class Errors(HostTestCase):
    def test_texts(self):
        cases = {
            folder / "none": "none: cannot be read",
            folder: "cannot be read",
            write("empty", b""): "expected a text of at least 2 tokens, got 0",
            write("one", b"a"): "expected a text of at least 2 tokens, got 1",
        }
        for path, message in cases.items():
            with self.subTest(message):
                self.assert_fails(perplexity(baseline, path), USAGE, path, message)

    def test_options(self):
        text = write("text", TEXT)
        self.assert_each_fails(lambda *arguments: perplexity(baseline, text, *arguments), USAGE, {
            ("--window", "1"): "--window: expected an integer of 2..256, got '1'",
            ("--window", "257"): "--window: expected an integer of 2..256, got '257'",
            ("--window", "2x"): "got '2x'",
            ("--stride", "0"): "--stride: expected an integer of 1..256, got '0'",
            ("--window", "64", "--stride", "65"): "--stride: expected an integer of 1..64, got '65'",
            ("--batch", "0"): "--batch: expected an integer of 1..65536, got '0'",
            ("--device", "tpu"): "--device",
            ("surplus",): "'surplus'",
        })  # fmt: skip
        self.assert_fails(run("perplexity", "--text", text), USAGE, "--model is missing")
        self.assert_fails(run("perplexity", "-m", baseline), USAGE, "--text is missing")

    def test_models(self):
        text = write("text", TEXT)
        self.assert_fails(perplexity(folder / "none", text), MODEL, "none/bundle.json: cannot be read")
        self.assert_fails(perplexity(module, text), MODEL, "no language model")
        small = copy_of(baseline, "small-vocabulary", vocab_size=100)
        self.assert_fails(perplexity(small, text), MODEL, "is outside the model's vocabulary of 100")

    def test_model_that_gives_nan(self):
        model = toy_bundles.ToyLanguageModel((False, False))
        with torch.no_grad():
            model.head.bias[3] = math.nan
        bundle = toy_bundles.write_language_model(folder / "nan", model, "baseline", [])
        self.assert_fails(perplexity(bundle, write("text", TEXT)), MODEL, "the model gave NaN in the window")

    def test_impossible_token(self):
        """A token of probability 0 makes the perplexity infinite, and no error."""
        model = toy_bundles.ToyLanguageModel((False, False))
        with torch.no_grad():
            model.head.bias[ord("z")] = -math.inf
        bundle = toy_bundles.write_language_model(folder / "infinite", model, "baseline", [])
        text = write("z", b"abzc")
        self.assertIn("perplexity: inf\n", self.said(perplexity(bundle, text)))
        self.assertIsNone(self.json_of(perplexity(bundle, text, "--json"))["perplexity"])

    def test_plugins(self):
        text = write("text", TEXT)
        command = ("perplexity", "-m", baseline, "--text", text, "--plugin")
        self.assert_fails(run(*command, BAD_PLUGIN), PLUGIN_ERROR, "the operator warpfuse::fused_logprob")


class Interrupting(HostTestCase):
    def test_ends_with_what_there_is(self):
        text = write("long", TEXT * 2000)
        for form in ((), ("--json",)):
            with start("perplexity", "-m", cycle, "--text", text, "--stride", "1", "--batch", "1", *form) as process:
                stdout, stderr = self.interrupt(process)  # the text takes minutes
            line = rf"\Awarpfuse: error: interrupted after (\d+) of {len(TEXT) * 2000 - 1} tokens, perplexity [\d.]+ so far\n\Z"
            self.assertRegex(stderr, line)
            if not form:
                self.assertEqual(stdout, b"")
                continue
            result = json.loads(stdout)
            self.assertIs(result["complete"], False)
            self.assertIn(f"after {result['tokens']} of", stderr)
            self.assertEqual(result["bytes"], result["tokens"])  # a byte per token in this model


if __name__ == "__main__":
    unittest.main()
