"""What the commands of the host program print."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import unittest

import torch

import toy_bundles
from cli_bundles import baseline, copy_of, cycle, fused, generate, half, perturbed, write
from host_program import MODEL, PLUGIN, USAGE, HostTestCase, folder, main, run, run_with_plugin, start
from toys import CYCLE, LAYERS


class Help(HostTestCase):
    def test_help_prints_examples_and_the_exit_codes(self):
        text = self.said(run("--help"))
        self.assertIn("Examples:", text)
        for code in (*range(7), 130):
            self.assertRegex(text, rf"(?m)^  {code}  \w")

    def test_each_command_ends_with_examples_whose_options_there_are(self):
        commands = re.findall(r"(?m)^  ([a-z]+) +[A-Za-z]", self.said(run("--help")).split("\nExamples:\n")[0])
        benches = re.findall(r"`(bench\s\w+)\s+--help`", self.said(run("bench", "--help")))
        names = [*commands, *(" ".join(name.split()) for name in benches)]
        self.assertEqual(len(names), 13, names)
        for name in names:
            examples = self.said(run(*name.split(), "--help")).split("\nExamples:\n")[1]
            self.assertIn(f"warpfuse {name}", examples)
            for words in re.findall(r"warpfuse ([^|>\n]+)", examples):
                with self.subTest(words):
                    self.assert_ok(run(*shlex.split(words), "--help"))

    def test_help_of_bench_lists_operators_and_presets(self):
        text = self.said(run("bench", "--help"))
        for part in (r"\nOperators:\n  softmax\n", r"\n  linear_dropout_softmax\n", r"\nPresets of --shapes:\n", r"\n  sweep "):
            self.assertRegex(text, part)

    def test_version(self):
        self.assertRegex(self.said(run("--version")), r"^warpfuse \d+\.\d+\.\d+ ")


class Info(HostTestCase):
    def test_tuning(self):
        text = self.said(run_with_plugin("info", "--tuning"))
        self.assertIn("limit shared_bytes", text)
        self.assertIn("\nforward 4 * * stream ", text)

    def test_json(self):
        info = self.json_of(run_with_plugin("info", "--json"))
        self.assertTrue(os.path.samefile(info["plugin"]["path"], PLUGIN))
        self.assertTrue(torch.__version__.startswith(info["libtorch"]["running"]))
        operators = {operator["name"]: operator for operator in info["operators"]}
        softmax = operators["warpfuse::scaled_masked_softmax"]
        self.assertTrue(softmax["schema"].startswith("warpfuse::scaled_masked_softmax(Tensor scores, "))
        self.assertLessEqual({"CPU", "Meta", "Autograd"}, set(softmax["backends"]))
        self.assertEqual("CUDA" in softmax["backends"], info["cuda"]["plugin"] is not None)

    def test_text(self):
        text = self.said(run_with_plugin("info"))
        self.assertRegex(text, r"(?m)^libtorch +\S+ running, \S+ built against$")
        self.assertRegex(text, r"(?m)^GPU ")
        self.assertIn("warpfuse::softmax(Tensor self, int dim", text)


class Generation(HostTestCase):
    def test_fused_and_baseline_say_the_same(self):
        texts = [self.assert_ok(generate(bundle)).stdout for bundle in (fused, half, baseline)]
        self.assertGreater(len(texts[0]), len("Hello\n"))
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(texts[0], texts[2])

    def test_counts_the_softmax_calls_that_the_plugin_served(self):
        calls = LAYERS * 24  # one prefill and 23 decode steps
        self.assertEqual(self.softmax_calls(generate(fused)), (calls, calls))
        self.assertEqual(self.softmax_calls(generate(half)), (calls // 2, calls))
        self.assertEqual(self.softmax_calls(generate(baseline)), (0, calls))

    def test_reports_the_rates(self):
        self.assertRegex(
            self.assert_ok(generate(fused)).stderr.decode(),
            r"\Aprefill: 5 tokens, [\d.]+ tokens/s\ndecode: 23 tokens, [\d.]+ tokens/s\nplugin: [^\n]+\n\Z",
        )

    def test_streams_whole_code_points(self):
        with start("generate", "-m", cycle, "-p", "", "-n", "100", stderr=subprocess.DEVNULL) as process:
            pieces = iter(lambda: os.read(process.stdout.fileno(), 65536), b"")
            text = "".join(piece.decode() for piece in pieces)  # a piece that ends inside a code point raises
        said = CYCLE * 9 + CYCLE[:1]  # 100 bytes; the last one starts an "é" that never ends
        self.assertEqual(text, said.decode(errors="replace") + "\n")

    def test_stops_at_the_context(self):
        result = self.assert_ok(run_with_plugin("generate", "-m", cycle, "-p", "x" * 250, "-n", "50"))
        note = "note: 1 of the continuations ended because the context of 256 is full\n"
        self.assertIn(note, result.stderr.decode())

    def test_prompt_forms(self):
        file = write("prompt.txt", "Hello\n")
        from_file = run_with_plugin("generate", "-m", baseline, "--prompt-file", file, "-n", "24")
        shown = generate(baseline).stdout
        self.assertEqual(self.assert_ok(from_file).stdout, shown)
        hidden = generate(baseline, "--no-display-prompt").stdout
        self.assertEqual(b"Hello" + hidden, shown)
        empty = run_with_plugin("generate", "-m", baseline, "-p", "", "-n", "8", "--no-display-prompt")
        special = run_with_plugin("generate", "-m", baseline, "-p", "<|endoftext|>", "-n", "8", "--no-display-prompt")
        self.assertIn("prefill: 1 tokens", special.stderr.decode())
        self.assertEqual(self.assert_ok(empty).stdout, special.stdout)


class Verification(HostTestCase):
    def test_fused_agrees_with_baseline(self):
        text = self.said(run_with_plugin("verify", fused, baseline, "-n", "4"))
        self.assertRegex(text, r"(?ms)^decode 3 .*^agree: .* greedy tokens 20 of 20 ")

    def test_perturbed_model_differs(self):
        text = self.assert_check_fails(run_with_plugin("verify", perturbed, baseline, "-n", "4"))
        self.assertRegex(text, r"(?m)^DIFFER: largest difference 0\.5, [\d.]+ relative to a row,")
        self.assert_ok(run_with_plugin("verify", perturbed, baseline, "-n", "4", "--tolerance", "1"))
        result = run_with_plugin("verify", perturbed, baseline, "--tolerance", "nan")
        self.assert_fails(result, USAGE, "--tolerance")
        self.assertEqual(result.stdout, b"")  # it is read before anything runs

    def test_small_outputs_are_compared_too(self):
        """A softmax over 60,000 columns, and half as much again."""
        scores = lambda v: v.flatten().expand(5000, 12).flatten()  # noqa: E731
        right = toy_bundles.write_module(folder / "small", lambda v, i: torch.softmax(scores(v), 0))
        wrong = toy_bundles.write_module(folder / "smaller", lambda v, i: 1.5 * torch.softmax(scores(v), 0))
        self.assert_ok(run("verify", right, right, "-n", "1"))
        text = self.assert_check_fails(run("verify", wrong, right, "-n", "1"))
        self.assertRegex(text, r"(?m)^DIFFER: largest difference [\d.e-]+, 0\.5 relative to a row$")

    def test_prompts_from_a_file(self):
        verify = ("verify", fused, baseline, "-n", "1", "--prompts")
        self.assertIn("greedy tokens 2 of 2", self.said(run_with_plugin(*verify, write("prompts.txt", "one\n\ntwo\n"))))
        self.assert_fails(run_with_plugin(*verify, write("prompts.txt", "\n")), USAGE, "--prompts")

    def test_module_inputs_are_drawn(self):
        functions = {
            "selected": lambda v, i: (v[i], v.sum()),
            "scaled": lambda v, i: (v[i] * 1.01, v.sum()),
            "undefined": lambda v, i: (v[i] / 0 * 0, v.sum()),
        }
        paths = {name: toy_bundles.write_module(folder / name, f) for name, f in functions.items()}
        self.assert_ok(run("verify", paths["selected"], paths["selected"], "-n", "3"))
        for name in ("scaled", "undefined"):
            text = self.assert_check_fails(run("verify", paths[name], paths["selected"], "-n", "3"))
        self.assertIn("largest difference nan", text)
        self.assert_check_fails(run("verify", paths["undefined"], paths["undefined"]))  # NaN agrees with nothing


class Tokenizing(HostTestCase):
    def tokenize(self, stdin, *arguments):
        return run("tokenize", "--tokenizer", baseline, *arguments, stdin=stdin)

    def test_lines(self):
        text = "AB é\n<|endoftext|>!\n".encode()
        ids = self.assert_ok(self.tokenize(text)).stdout
        self.assertEqual(ids, b"65 66 32 195 169\n256 33\n")
        self.assertEqual(self.assert_ok(self.tokenize(ids, "--decode")).stdout, text)

    def test_any_bytes_come_back(self):
        data = bytes(byte for byte in range(256) if byte != ord("\n")) + b"\n"
        self.assertEqual(self.tokenize(self.tokenize(data).stdout, "--decode").stdout, data)

    def test_json(self):
        ids = self.assert_ok(self.tokenize(b'"a\\nb"\n""\n', "--json")).stdout
        self.assertEqual([json.loads(line) for line in ids.splitlines()], [[97, 10, 98], []])
        text = self.assert_ok(self.tokenize(ids, "--json", "--decode")).stdout
        self.assertEqual([json.loads(line) for line in text.splitlines()], ["a\nb", ""])

    @unittest.skipIf(importlib.util.find_spec("transformers") is None, "transformers is not installed")
    def test_added_tokens_are_those_of_transformers(self):
        transformers = importlib.import_module("transformers")
        tokenizer = transformers.GPT2TokenizerFast(str(baseline / "vocab.json"), str(baseline / "merges.txt"))
        tokenizer.add_special_tokens({"pad_token": "<pad>", "additional_special_tokens": ["<user>", "<user>s"]})
        tokenizer.add_tokens(["plain word"])
        texts = ["<user>hi<pad>", "<users><user>s", "a plain word", "<|endoftext|><us", "<use<user>r>"]
        expected = [tokenizer(text)["input_ids"] for text in texts]
        self.assertIn(258, expected[0])
        saved, alone = folder / "added", folder / "added-alone"
        tokenizer.save_pretrained(saved)
        alone.mkdir()
        for tokens in (saved, alone):
            for name in ("vocab.json", "merges.txt"):
                shutil.copy(baseline / name, tokens)
        (alone / "added_tokens.json").write_text(json.dumps(tokenizer.get_added_vocab()))
        for tokens in (saved, alone):
            result = run("tokenize", "--tokenizer", tokens, stdin="\n".join(texts).encode())
            ids = [list(map(int, line.split())) for line in self.assert_ok(result).stdout.splitlines()]
            self.assertEqual(ids, expected)
            back = run("tokenize", "--tokenizer", tokens, "--decode", stdin=result.stdout).stdout
            self.assertEqual(back.decode().splitlines(), texts)

    def test_added_tokens_that_cannot_be_used(self):
        cases = {
            "added_tokens.json": [({"<x>": 3}, "id 3 stands for two tokens"), ({"<x>": -1}, "an id of at least 0, got -1"),
                                  ({"a": 300}, "not the vocabulary's"), ({"": 300}, "expected a text")],
            "tokenizer.json": [({"added_tokens": [{"content": "<x>", "id": 300, "rstrip": True}]}, "rstrip is not supported")],
            "special_tokens_map.json": [({"pad_token": "<x>"}, 'pad_token "<x>" has no id'), ({"pad_token": 3}, "expected a token, got 3")],
        }
        for name, contents in cases.items():
            for number, (content, message) in enumerate(contents):
                bundle = copy_of(baseline, f"bad-{name}-{number}")
                (bundle / name).write_text(json.dumps(content))
                with self.subTest(message):
                    self.assert_fails(run("tokenize", "--tokenizer", bundle, stdin=b"x\n"), MODEL, message)

    def test_bad_lines_are_named(self):
        self.assert_each_fails(self.tokenize, USAGE, {
            (b"65\n65 x\n", "--decode"): "stdin line 2: expected token ids",
            (b"65\n257\n", "--decode"): "stdin line 2: token id 257",
            (b"-1\n", "--decode"): "stdin line 1: token id -1",
            (b'"a"\n{\n', "--json"): "stdin line 2: expected a JSON string",
            (b"[1]\n", "--json"): "stdin line 1: expected a JSON string",
            (b'[65]\n["a"]\n', "--json", "--decode"): "stdin line 2: expected a JSON array",
            (b"[18446744073709551615]\n", "--json", "--decode"): "stdin line 1: expected a JSON array",
        })  # fmt: skip


if __name__ == "__main__":
    main()
