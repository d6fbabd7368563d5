"""The host program seen from outside: exit codes, messages, output. Needs no trained model."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import torch

import toy_bundles
from host_program import (
    CHECK_FAILED, DEVICE, HOST, MODEL, PLUGIN, PLUGIN_ERROR, USAGE, HostTestCase, gpu_names, run, run_with_plugin,
)

MARKER = b"warpfuse_build_info"  # the symbol that tells a copy of the plugin
CYCLE = "é€𝄞".encode() + b"\xff "


def setUpModule():
    global folder, fused, half, baseline, perturbed, cycle
    torch.ops.load_library(PLUGIN)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="warpfuse-cli-"))
    fused = toy_bundles.write_toy(folder / "fused", "fused", routed=(True, True))
    half = toy_bundles.write_toy(folder / "half", "half", routed=(True, False))
    baseline = toy_bundles.write_toy(folder / "baseline", "baseline", routed=(False, False))
    perturbed = toy_bundles.write_perturbed(folder / "perturbed", routed=(False, False))
    cycle = toy_bundles.write_cycle(folder / "cycle", CYCLE)


def tearDownModule():
    shutil.rmtree(folder)


def copy_of(bundle, name):
    return pathlib.Path(shutil.copytree(bundle, folder / name))


def edit_description(bundle, **fields):
    file = bundle / "bundle.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def generate(bundle, *arguments, **options):
    return run_with_plugin("generate", "-m", bundle, "-p", "Hello", "-n", "24", *arguments, **options)


class Usage(HostTestCase):
    def test_help_prints_examples_and_the_exit_codes(self):
        text = self.assert_ok(run("--help")).stdout.decode()
        self.assertIn("Examples:", text)
        for code in range(6):
            self.assertRegex(text, rf"(?m)^  {code}  \w")

    def test_each_command_has_help_with_examples(self):
        for command in ("generate", "tokenize", "verify", "info"):
            text = self.assert_ok(run(command, "--help")).stdout.decode()
            self.assertIn(f"warpfuse {command}", text)
            self.assertIn("Examples:", text)

    def test_version(self):
        self.assertRegex(self.assert_ok(run("--version")).stdout.decode(), r"^warpfuse \d+\.\d+\.\d+ ")

    def test_no_command(self):
        self.assert_fails(run(), USAGE, "no command")

    def test_unknown_command(self):
        self.assert_fails(run("sing"), USAGE, "unknown command 'sing'")

    def test_unknown_option(self):
        self.assert_fails(run("--sing"), USAGE, "unknown option '--sing'")
        for command in ("generate", "tokenize", "verify", "info"):
            self.assert_fails(run(command, "--sing"), USAGE, "sing")

    def test_surplus_argument(self):
        self.assert_fails(generate(baseline, "surplus"), USAGE, "'surplus'")

    def test_bad_values(self):
        cases = {
            ("-n", "0"): "an integer of at least 1, got '0'",
            ("-n", "4x"): "an integer of at least 1, got '4x'",
            ("--temperature", "-1"): "a number of at least 0, got '-1'",
            ("--temperature", "nan"): "got 'nan'",
            ("--top-k", "-2"): "an integer of at least 0, got '-2'",
            ("--seed", "one"): "got 'one'",
            ("--device", "tpu"): "expected auto, cpu, cuda or cuda:<index>, got 'tpu'",
            ("--device", "cuda:x"): "got 'cuda:x'",
        }
        for arguments, message in cases.items():
            with self.subTest(arguments):
                result = run_with_plugin("generate", "-m", baseline, "-p", "a", *arguments)
                self.assert_fails(result, USAGE, arguments[0], message)

    def test_missing_options(self):
        self.assert_fails(run("generate", "-p", "a"), USAGE, "--model is missing")
        self.assert_fails(run("generate", "-m", baseline), USAGE, "-p TEXT and --prompt-file F")
        self.assert_fails(run("tokenize"), USAGE, "--tokenizer is missing")
        self.assert_fails(run("verify", baseline), USAGE, "--reference is missing")

    def test_unreadable_prompt_file(self):
        result = run_with_plugin("generate", "-m", baseline, "--prompt-file", folder / "none")
        self.assert_fails(result, USAGE, folder / "none")


class Models(HostTestCase):
    def test_missing_folder_and_missing_description(self):
        self.assert_fails(generate(folder / "none"), MODEL, "none/bundle.json: cannot be read")
        bundle = copy_of(baseline, "no-description")
        (bundle / "bundle.json").unlink()
        self.assert_fails(generate(bundle), MODEL, "bundle.json: cannot be read")
        self.assert_fails(run_with_plugin("verify", bundle, baseline), MODEL, "bundle.json")

    def test_description_names_the_field(self):
        bundle = copy_of(baseline, "bad-description")
        edit_description(bundle, context="long")
        self.assert_fails(generate(bundle), MODEL, "field 'context': expected an integer", 'got "long"')

    def test_truncated_model(self):
        bundle = copy_of(baseline, "truncated")
        data = (bundle / "model.pt").read_bytes()
        (bundle / "model.pt").write_bytes(data[: len(data) // 2])
        self.assert_fails(generate(bundle), MODEL, "model.pt", "SHA-256")

    def test_truncated_model_whose_hash_is_right(self):
        bundle = copy_of(baseline, "truncated-with-hash")
        data = (bundle / "model.pt").read_bytes()
        self.replace_model(bundle, data[: len(data) // 2])
        self.assert_fails(generate(bundle), MODEL, "model.pt")

    def test_foreign_model(self):
        bundle = copy_of(baseline, "foreign")
        self.replace_model(bundle, b"GGUF" + bytes(1000))
        self.assert_fails(generate(bundle), MODEL, "model.pt: not a TorchScript file")

    def test_missing_model_and_tokenizer_files(self):
        for name in ("model.pt", "vocab.json", "merges.txt"):
            bundle = copy_of(baseline, f"without-{name}")
            (bundle / name).unlink()
            self.assert_fails(generate(bundle), MODEL, name)

    def test_prompt_longer_than_the_context(self):
        result = run_with_plugin("generate", "-m", baseline, "-p", "x" * 257)
        self.assert_fails(result, MODEL, "the prompt has 257 tokens, the model's context is 256")
        self.assertEqual(result.stdout, b"")

    def test_a_module_is_no_language_model(self):
        inputs = [{"name": "values", "dtype": "float32", "shape": [3, 4], "std": 1.0},
                  {"name": "indices", "dtype": "int64", "shape": [2], "low": 0, "high": 3}]
        bundle = toy_bundles.write_module(folder / "module", lambda v, i: v[i], inputs)
        for name in ("vocab.json", "merges.txt"):
            shutil.copy(baseline / name, bundle)
        self.assert_fails(generate(bundle), MODEL, "no language model")

    @staticmethod
    def replace_model(bundle, data):
        (bundle / "model.pt").write_bytes(data)
        digest = subprocess.run(["sha256sum", bundle / "model.pt"], capture_output=True, text=True, check=True)
        edit_description(bundle, sha256={"model.pt": digest.stdout.split()[0]})


class Plugins(HostTestCase):
    def test_found_by_default_beside_the_program_or_in_lib(self):
        for place in ("bin", "lib"):
            with self.subTest(place):
                tree = folder / f"tree-{place}"
                (tree / "bin").mkdir(parents=True)
                (tree / "lib").mkdir()
                shutil.copy(HOST, tree / "bin" / "warpfuse")
                shutil.copy(PLUGIN, tree / place / "libwarpfuse.so")
                info = self.assert_ok(run("info", "--json", host=tree / "bin" / "warpfuse"))
                path = json.loads(info.stdout)["plugin"]["path"]
                self.assertTrue(os.path.samefile(path, tree / place / "libwarpfuse.so"))

    def test_no_plugin(self):
        lonely = folder / "lonely" / "bin" / "warpfuse"
        lonely.parent.mkdir(parents=True)
        shutil.copy(HOST, lonely)
        arguments = ("generate", "-p", "a", "-n", "1", "-m")
        self.assert_fails(run(*arguments, fused, host=lonely), PLUGIN_ERROR, "no plugin", "--plugin")
        self.assert_fails(run("info", host=lonely), PLUGIN_ERROR, "no plugin")
        self.assert_ok(run(*arguments, baseline, host=lonely))

    def test_named_plugin_is_not_there(self):
        self.assert_fails(run("info", "--plugin", folder / "none.so"), PLUGIN_ERROR, "none.so: no such file")

    def test_not_a_library(self):
        text = folder / "text.so"
        text.write_text("no library\n")
        self.assert_fails(run("info", "--plugin", text), PLUGIN_ERROR, "cannot be loaded", text)

    def test_library_without_the_operators(self):
        other = pathlib.Path(torch.__file__).parent / "lib" / "libc10.so"
        self.assert_fails(run("info", "--plugin", other), PLUGIN_ERROR, "no warpfuse plugin", other)

    @unittest.skipUnless(shutil.which("c++"), "needs a compiler")
    def test_library_with_a_missing_symbol(self):
        library = folder / "missing-symbol.so"
        source = b'extern "C" void absent_symbol(); extern "C" void call() { absent_symbol(); }'
        subprocess.run(["c++", "-shared", "-fPIC", "-x", "c++", "-", "-o", library], input=source, check=True)
        self.assert_fails(run("info", "--plugin", library), PLUGIN_ERROR, "undefined symbol: absent_symbol")

    def test_preloaded_plugin_is_used(self):
        result = self.assert_ok(run("generate", "-m", fused, "-p", "a", "-n", "2", preload=PLUGIN))
        self.assertEqual(self.softmax_calls(result), (4, 4))
        self.assert_ok(generate(fused, preload=PLUGIN))

    def test_second_copy_of_the_plugin(self):
        copy = folder / "copy.so"
        shutil.copy(PLUGIN, copy)
        preloaded = run("generate", "-m", fused, "-p", "a", "--plugin", copy, preload=PLUGIN)
        self.assert_fails(preloaded, PLUGIN_ERROR, copy, "in this process already")
        self.assert_fails(generate(fused, "--op-library", copy), PLUGIN_ERROR, copy, "a second copy of the plugin")
        self.assert_ok(generate(fused, "--op-library", PLUGIN))

    def test_library_whose_registration_clashes(self):
        clashing = folder / "clashing.so"
        data = pathlib.Path(PLUGIN).read_bytes()
        self.assertIn(MARKER, data)
        clashing.write_bytes(data.replace(MARKER, MARKER[:-1] + b"_"))
        self.assert_fails(generate(fused, "--op-library", clashing), PLUGIN_ERROR, clashing, "warpfuse")

    def test_operator_that_no_library_has(self):
        bundle = copy_of(fused, "needs-other")
        edit_description(bundle, operators=["warpfuse::scaled_masked_softmax", "other::thing"])
        self.assert_fails(generate(bundle), PLUGIN_ERROR, "needs the operator other::thing")

    def test_bundle_of_another_schema_version(self):
        bundle = copy_of(fused, "future")
        edit_description(bundle, schema_version=9)
        self.assert_fails(generate(bundle), MODEL, "schema version 9")


class Devices(HostTestCase):
    def test_gpu_that_is_not_there(self):
        request = "cuda" if not gpu_names() else f"cuda:{len(gpu_names())}"
        self.assert_fails(generate(fused, "--device", request), DEVICE, f"--device {request}")


class Info(HostTestCase):
    def test_json(self):
        info = json.loads(self.assert_ok(run_with_plugin("info", "--json")).stdout)
        self.assertTrue(os.path.samefile(info["plugin"]["path"], PLUGIN))
        self.assertTrue(torch.__version__.startswith(info["libtorch"]["running"]))
        operators = {operator["name"]: operator for operator in info["operators"]}
        softmax = operators["warpfuse::scaled_masked_softmax"]
        self.assertTrue(softmax["schema"].startswith("warpfuse::scaled_masked_softmax(Tensor scores, "))
        self.assertLessEqual({"CPU", "Meta", "Autograd"}, set(softmax["backends"]))
        self.assertEqual("CUDA" in softmax["backends"], info["cuda"]["plugin"] is not None)

    def test_text(self):
        text = self.assert_ok(run_with_plugin("info")).stdout.decode()
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
        calls = toy_bundles.LAYERS * 24  # one prefill and 23 decode steps
        self.assertEqual(self.softmax_calls(generate(fused)), (calls, calls))
        self.assertEqual(self.softmax_calls(generate(half)), (calls // 2, calls))
        self.assertEqual(self.softmax_calls(generate(baseline)), (0, calls))

    def test_reports_the_rates(self):
        self.assertRegex(
            self.assert_ok(generate(fused)).stderr.decode(),
            r"\Aprefill: 5 tokens, [\d.]+ tokens/s\ndecode: 23 tokens, [\d.]+ tokens/s\nplugin: [^\n]+\n\Z",
        )

    def test_streams_whole_code_points(self):
        command = [HOST, "generate", "-m", cycle, "-p", "", "-n", "100", "--plugin", PLUGIN]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            pieces = iter(lambda: os.read(process.stdout.fileno(), 65536), b"")
            text = "".join(piece.decode() for piece in pieces)  # a piece that ends inside a code point raises
        said = CYCLE * 9 + CYCLE[:1]  # 100 bytes; the last one starts an "é" that never ends
        self.assertEqual(text, said.decode(errors="replace") + "\n")

    def test_stops_at_the_context(self):
        result = self.assert_ok(run_with_plugin("generate", "-m", cycle, "-p", "x" * 250, "-n", "50"))
        self.assertIn("note: stopped after 7 tokens: the context of 256 is full\n", result.stderr.decode())

    def test_prompt_forms(self):
        file = folder / "prompt.txt"
        file.write_bytes(b"Hello\n")
        from_file = run_with_plugin("generate", "-m", baseline, "--prompt-file", file, "-n", "24")
        shown = generate(baseline).stdout
        self.assertEqual(self.assert_ok(from_file).stdout, shown)
        hidden = generate(baseline, "--no-display-prompt").stdout
        self.assertEqual(b"Hello" + hidden, shown)
        empty = run_with_plugin("generate", "-m", baseline, "-p", "", "-n", "8", "--no-display-prompt")
        special = run_with_plugin("generate", "-m", baseline, "-p", "<|endoftext|>", "-n", "8", "--no-display-prompt")
        self.assertIn("prefill: 1 tokens", special.stderr.decode())
        self.assertEqual(self.assert_ok(empty).stdout, special.stdout)

    def test_sampling_depends_on_the_seed_alone(self):
        def sample(seed):
            return self.assert_ok(generate(baseline, "--temperature", "1", "--top-k", "50", "--seed", seed)).stdout

        self.assertEqual(sample(1), sample(1))
        self.assertNotEqual(sample(1), sample(2))
        self.assertNotEqual(sample(1), generate(baseline).stdout)


class Verification(HostTestCase):
    def test_fused_agrees_with_baseline(self):
        result = self.assert_ok(run_with_plugin("verify", fused, baseline, "-n", "4"))
        self.assertRegex(result.stdout.decode(), r"(?m)^agree: .* greedy tokens 20 of 20 ")
        self.assertRegex(result.stdout.decode(), r"(?m)^decode 3 ")

    def test_perturbed_model_differs(self):
        result = run_with_plugin("verify", perturbed, baseline, "-n", "4")
        self.assertEqual(result.returncode, CHECK_FAILED, result.stderr.decode())
        self.assertRegex(result.stdout.decode(), r"(?m)^DIFFER: largest difference 0\.5,")
        self.assert_ok(run_with_plugin("verify", perturbed, baseline, "-n", "4", "--tolerance", "0.5"))

    def test_prompts_from_a_file(self):
        prompts = folder / "prompts.txt"
        prompts.write_text("one\n\ntwo\n")
        result = self.assert_ok(run_with_plugin("verify", fused, baseline, "--prompts", prompts, "-n", "1"))
        self.assertIn("greedy tokens 2 of 2", result.stdout.decode())
        prompts.write_text("\n")
        self.assert_fails(run_with_plugin("verify", fused, baseline, "--prompts", prompts), USAGE, "--prompts")

    def test_module_inputs_are_drawn(self):
        inputs = [{"name": "values", "dtype": "float32", "shape": [3, 4], "std": 2.0},
                  {"name": "indices", "dtype": "int64", "shape": [2], "low": 0, "high": 3}]
        functions = {
            "selected": lambda v, i: (v[i], v.sum()),
            "scaled": lambda v, i: (v[i] * 1.01, v.sum()),
            "undefined": lambda v, i: (v[i] / 0 * 0, v.sum()),
        }
        paths = {name: toy_bundles.write_module(folder / name, f, inputs) for name, f in functions.items()}
        self.assert_ok(run("verify", paths["selected"], paths["selected"], "-n", "3"))
        for name in ("scaled", "undefined"):
            result = run("verify", paths[name], paths["selected"], "-n", "3")
            self.assertEqual(result.returncode, CHECK_FAILED, result.stderr.decode())
        self.assertIn("largest difference nan", result.stdout.decode())
        itself = run("verify", paths["undefined"], paths["undefined"])
        self.assertEqual(itself.returncode, CHECK_FAILED)  # NaN agrees with nothing

    def test_bundles_of_different_kinds(self):
        inputs = [{"name": "values", "dtype": "float32", "shape": [3, 4], "std": 1.0},
                  {"name": "indices", "dtype": "int64", "shape": [2], "low": 0, "high": 3}]
        module = toy_bundles.write_module(folder / "other-kind", lambda v, i: v[i], inputs)
        self.assert_fails(run_with_plugin("verify", module, baseline), MODEL, "their kinds differ")


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

    def test_bad_lines_are_named(self):
        cases = {
            (b"65\n65 x\n", ("--decode",)): "stdin line 2: expected token ids",
            (b"65\n257\n", ("--decode",)): "stdin line 2: token id 257",
            (b"-1\n", ("--decode",)): "stdin line 1: token id -1",
            (b'"a"\n{\n', ("--json",)): "stdin line 2: expected a JSON string",
            (b"[1]\n", ("--json",)): "stdin line 1: expected a JSON string",
            (b'[65]\n["a"]\n', ("--json", "--decode")): "stdin line 2: expected a JSON array",
        }
        for (stdin, arguments), message in cases.items():
            with self.subTest(message):
                self.assert_fails(self.tokenize(stdin, *arguments), USAGE, message)


if __name__ == "__main__":
    unittest.main()
