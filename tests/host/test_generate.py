"""`warpfuse generate` on many prompts, on the device that WARPFUSE_DEVICE names."""

import json
import os
import subprocess
import sys

import torch

from cli_bundles import baseline, copy_of, cycle, edit_description, ending, fused, undefined, write
from host_program import DEVICE, HOST, MODEL, PLUGIN, USAGE, HostTestCase, main, run_with_plugin, start
from toy_bundles import new_cache
from toys import CONTEXT, CYCLE, END_OF_TEXT, LAYERS

PROMPTS = ["Hello", "a", "the river", "abcde", "x" * 40, "ghijk", "y" * 130, "zz"]


def write_prompts(prompts):
    return write("prompts.jsonl", "".join(json.dumps(prompt) + "\n" for prompt in prompts))


def generate(bundle, *arguments, **options):
    return run_with_plugin("generate", "-m", bundle, "--device", DEVICE, *arguments, **options)


class Generation(HostTestCase):
    def lines(self, bundle, prompts, *arguments):
        path = write_prompts(prompts)
        result = self.assert_ok(generate(bundle, "--prompts", path, "--json", *arguments))
        return [json.loads(line) for line in result.stdout.splitlines()]

    def ids(self, bundle, prompts, *arguments):
        return [line["ids"] for line in self.lines(bundle, prompts, *arguments)]

    def greedy(self, prompt, tokens):
        """What the baseline model says by libtorch alone, on the CPU."""
        model = torch.jit.load(str(baseline / "model.pt"))
        cache = new_cache(CONTEXT)
        sequence = list(prompt.encode())
        with torch.no_grad():
            for _ in range(tokens):
                ids = torch.tensor([sequence])
                logits = model.forward(ids, torch.arange(len(sequence))[None], cache)
                sequence.append(int(logits[0, -1].argmax()))
        return sequence[len(prompt) :]


class Batches(Generation):
    def test_greedy_ids_are_those_of_libtorch(self):
        expected = [self.greedy(prompt, 20) for prompt in PROMPTS]
        for bundle in (baseline, fused):
            for batch in (1, 3, 8):
                with self.subTest(bundle=bundle.name, batch=batch):
                    arguments = ("-n", 20, "--batch", batch, "--ignore-eos")
                    self.assertEqual(self.ids(bundle, PROMPTS, *arguments), expected)

    def test_graphs_change_nothing(self):
        arguments = ("-n", 140, "--batch", 3, "--ignore-eos")  # across two buckets
        with_graphs = self.ids(fused, PROMPTS[:5], *arguments)
        self.assertEqual(with_graphs, self.ids(fused, PROMPTS[:5], *arguments, "--no-graph"))
        self.assertEqual([len(ids) for ids in with_graphs], [140] * 5)

    def test_samples_do_not_depend_on_the_batch(self):
        arguments = ("-n", 24, "--temperature", "0.9", "--top-k", 40, "--top-p", "0.95", "--min-p", "0.01")
        def sample(seed, batch):
            return self.ids(fused, PROMPTS, *arguments, "--ignore-eos", "--seed", seed, "--batch", batch)

        first = sample(7, 8)
        self.assertEqual(first, sample(7, 8))
        self.assertEqual(first, sample(7, 1))
        self.assertEqual(first, sample(7, 3))
        self.assertNotEqual(first, sample(8, 8))
        alike = self.ids(fused, ["same", "same"], *arguments, "--ignore-eos", "--seed", 7)
        self.assertNotEqual(alike[0], alike[1])  # each prompt has draws of its own

    def test_softmax_calls_are_counted_through_replays(self):
        result = self.assert_ok(generate(fused, "-p", "Hello", "-n", 140, "--ignore-eos"))
        self.assertEqual(self.softmax_calls(result), (LAYERS * 140, LAYERS * 140))
        self.assertNotIn("note:", result.stderr.decode())

    def test_text_comes_in_the_order_of_the_prompts(self):
        path = write_prompts(PROMPTS)
        ids = self.ids(fused, PROMPTS, "-n", 9, "--ignore-eos")
        text = self.assert_ok(generate(fused, "--prompts", path, "-n", 9, "--batch", 3, "--ignore-eos")).stdout
        single = [self.assert_ok(generate(fused, "-p", p, "-n", 9, "--ignore-eos")).stdout for p in PROMPTS]
        self.assertEqual(text, b"---\n".join(single))
        self.assertEqual([len(each) for each in ids], [9] * len(PROMPTS))


class Ends(Generation):
    def test_each_row_ends_on_its_own(self):
        lines = self.lines(cycle, ["x", "x" * 250, "x" * 256], "-n", 20, "--batch", 2)
        self.assertEqual([len(line["ids"]) for line in lines], [20, 7, 1])
        self.assertEqual([line["finish_reason"] for line in lines], ["length", "context", "context"])
        self.assertEqual([line["prompt_tokens"] for line in lines], [1, 250, 256])
        single = self.lines(cycle, ["x"] * 5, "-n", 1, "--batch", 2)
        self.assertEqual([len(line["ids"]) for line in single], [1] * 5)

    def test_end_of_text(self):
        # The cycle model goes on with its text from whatever it was given but a byte of it.
        lines = self.lines(cycle, ["x"], "-n", 6)
        self.assertEqual(bytes(lines[0]["ids"]), CYCLE[:6])
        ended = self.lines(ending, ["x", "yx"], "-n", 30)
        self.assertEqual([line["finish_reason"] for line in ended], ["end_of_text"] * 2)
        self.assertEqual([line["ids"] for line in ended], [[*b"ab", END_OF_TEXT]] * 2)
        self.assertEqual([(line["text"], line["complete"]) for line in ended], [("ab", True)] * 2)
        scored = self.lines(ending, ["x"], "-n", 30, "--logprobs", 1)[0]
        self.assertEqual([token["id"] for token in scored["logprobs"]], scored["ids"])
        going = self.lines(ending, ["x"], "-n", 8, "--ignore-eos")
        self.assertEqual(going[0]["finish_reason"], "length")
        self.assertEqual(going[0]["ids"][:3], [*b"ab", END_OF_TEXT])

    def test_end_tokens_of_the_bundle(self):
        bundle = copy_of(ending, "two-ends", end_tokens=[ord("b"), END_OF_TEXT])
        line = self.lines(bundle, ["x"], "-n", 30)[0]
        self.assertEqual((line["ids"], line["text"], line["finish_reason"]), ([*b"ab"], "a", "end_of_text"))
        edit_description(bundle, end_tokens=[])
        self.assertEqual(self.lines(bundle, ["x"], "-n", 8)[0]["finish_reason"], "length")
        edit_description(bundle, end_tokens=[1000])
        self.assert_fails(generate(bundle, "-p", "x"), MODEL, "field 'end_tokens': expected an array of token ids")

    def test_stop_texts(self):
        said = CYCLE.decode(errors="replace")
        line = self.lines(cycle, ["x"], "-n", 40, "--stop", "never", "--stop", said[2])[0]
        self.assertEqual((line["text"], line["finish_reason"]), (said[:2], "stop_text"))
        escaped = "".join(f"\\x{byte:02x}" for byte in said[2].encode())
        line = self.lines(cycle, ["x"], "-n", 40, "--stop", escaped)[0]
        self.assertEqual((line["text"], line["finish_reason"]), (said[:2], "stop_text"))
        whole = self.lines(cycle, ["x"], "-n", 5, "--stop", "never said")[0]
        self.assertEqual((whole["text"], whole["finish_reason"]), (said[:2], "length"))

    def test_prompts_that_are_too_long(self):
        path = write_prompts(["short", "x" * 300])
        result = generate(cycle, "--prompts", path)
        self.assert_fails(result, MODEL, f"{path} line 2: the prompt has 300 tokens, the model's context is 256")
        self.assertEqual(result.stdout, b"")
        lines = self.lines(cycle, ["x" * 300], "-n", 40, "--truncate")
        self.assertEqual((lines[0]["prompt_tokens"], len(lines[0]["ids"])), (256 - 40 + 1, 40))
        half = self.lines(cycle, ["x" * 300], "-n", 1000, "--truncate")
        self.assertEqual(half[0]["prompt_tokens"], 128)

    def test_a_model_that_gives_nan(self):
        for arguments in ((), ("--temperature", "0.01")):
            result = generate(undefined, "-p", "x", "-n", 9, *arguments)
            self.assert_fails(result, MODEL, "the model gave a NaN logit at token 2 of prompt 0")
        path = write_prompts(["x", "x"])
        lines = [json.loads(line) for line in generate(undefined, "--prompts", path, "--json").stdout.splitlines()]
        self.assertEqual([(line["finish_reason"], line["complete"]) for line in lines], [("error", False)] * 2)
        self.assertEqual([bytes(line["ids"]) for line in lines], [b"ab"] * 2)

    def test_ctrl_c_ends_with_what_there_is(self):
        path = write_prompts(["x"] * 4000)
        options = ("--prompts", path, "-n", "200", "--ignore-eos", "--device", DEVICE, "--json", "--batch", "2")
        process = start("generate", "-m", fused, *options, bufsize=0)
        first = process.stdout.readline()
        rest, errors = self.interrupt(process)
        lines = [json.loads(line) for line in (first + rest).splitlines()]
        self.assertEqual(len(lines), 4000)  # what never began too
        self.assertEqual(lines[0]["finish_reason"], "length")
        self.assertEqual((lines[-1]["finish_reason"], lines[-1]["ids"]), ("interrupted", []))
        self.assertEqual((lines[0]["complete"], lines[-1]["complete"]), (True, False))
        self.assertIn("\ndecode: ", errors)
        self.assertIn("warpfuse: error: interrupted", errors)


class Scores(Generation):
    def test_log_probabilities_are_those_of_log_softmax(self):
        model = torch.jit.load(str(baseline / "model.pt"))
        for prompt, line in zip(PROMPTS[:4], self.lines(fused, PROMPTS[:4], "-n", 10, "--logprobs", 3, "--ignore-eos")):
            cache = new_cache(CONTEXT)
            sequence = list(prompt.encode()) + line["ids"]
            with torch.no_grad():
                logits = model.forward(torch.tensor([sequence]), torch.arange(len(sequence))[None], cache)
            expected = logits[0, len(prompt) - 1 : -1].double().log_softmax(-1)
            self.assertEqual(len(line["logprobs"]), 10)
            for row, token in zip(expected, line["logprobs"]):
                self.assertAlmostEqual(token["logprob"], row[token["id"]].item(), delta=1e-4)
                self.assertEqual(token["logprob"], token["top_logprobs"][0]["logprob"])  # the same token: greedy
                best = row.topk(3)
                self.assertEqual([each["id"] for each in token["top_logprobs"]], best.indices.tolist())
                for each, value in zip(token["top_logprobs"], best.values.tolist()):
                    self.assertAlmostEqual(each["logprob"], value, delta=1e-4)

    def test_scores_change_no_token(self):
        arguments = ("-n", 30, "--batch", 3, "--ignore-eos")
        self.assertEqual(
            self.ids(fused, PROMPTS, *arguments), self.ids(fused, PROMPTS, *arguments, "--logprobs", 0)
        )


class Memory(Generation):
    # From a small process: a child counts the memory of the one that it was split from.
    PEAK = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss)
"""

    def peak_kib(self, prompts):
        path = write_prompts([f"prompt {i}" for i in range(prompts)])
        command = [HOST, "generate", "-m", fused, "--prompts", path, "-n", "130", "--batch", "4", "--ignore-eos"]
        command += ["--device", DEVICE, "--plugin", PLUGIN]
        measuring = [sys.executable, "-I", "-S", "-c", self.PEAK, *map(str, command)]
        code, peak = map(int, subprocess.check_output(measuring, timeout=300).split())
        self.assertEqual(code, 0)
        return peak

    def test_does_not_grow_with_the_tokens(self):
        few, many = self.peak_kib(8), self.peak_kib(80)  # the latter more than 10,000 tokens
        self.assertLess(many - few, 24 * 1024, f"{few} KiB for 8 prompts, {many} for 80")


class Files(Generation):
    def test_the_id_of_a_prompt_comes_back(self):
        lines = self.lines(cycle, [{"id": "a-7", "prompt": "x"}, "x", {"prompt": "x", "id": [1, None]}], "-n", 2)
        self.assertEqual([line.get("id", "none") for line in lines], ["a-7", "none", [1, None]])

    def test_stdin(self):
        expected = self.assert_ok(generate(cycle, "-p", "x", "-n", 4)).stdout
        for arguments in (("-p", "-"), ("--prompt-file", "-"), ("--prompts", "-")):
            result = generate(cycle, *arguments, "-n", 4, stdin=b"x\r\n")
            self.assertEqual(self.assert_ok(result).stdout, expected)

    def test_a_value_in_one_with_its_option(self):
        here = os.path.relpath(cycle)
        result = run_with_plugin("generate", f"-m./{here}", "-px", "-n4", "--device", DEVICE)
        self.assertEqual(self.assert_ok(result).stdout, self.assert_ok(generate(cycle, "-p", "x", "-n", 4)).stdout)

    def test_files_that_cannot_be_used(self):
        bad = write("bad.jsonl", '"x"\n{}\n')
        self.assert_fails(generate(cycle, "--prompts", bad), USAGE, "bad.jsonl line 2")
        self.assert_fails(generate(cycle, "--prompts", bad, "-p", "x"), USAGE, "expected one of")


if __name__ == "__main__":
    main()
