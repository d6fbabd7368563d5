"""What the host program says to bad input: one line on stderr and the documented exit code."""

import hashlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import unittest

from cli_bundles import baseline, copy_of, edit_description, fused, generate, module, write
from host_program import (
    BAD_PLUGIN,
    DEVICE_ERROR,
    HOST,
    MODEL,
    PLUGIN,
    PLUGIN_ERROR,
    USAGE,
    HostTestCase,
    folder,
    gpu_names,
    lonely_host,
    main,
    run,
    run_with_plugin,
)


class Usage(HostTestCase):
    def test_no_command(self):
        self.assert_fails(run(), USAGE, "no command")

    def test_unknown_command(self):
        self.assert_fails(run("sing"), USAGE, "unknown command 'sing'")

    def test_unknown_option(self):
        self.assert_fails(run("--sing"), USAGE, "unknown option '--sing'")
        for command in ("generate", "perplexity", "tokenize", "verify", "info"):
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
            ("--top-k", "5"): "no meaning at --temperature 0",
            ("--top-p", "0.5"): "no meaning at --temperature 0",
            ("--min-p", "0.5"): "no meaning at --temperature 0",
            ("--seed", "5"): "no meaning at --temperature 0",
            ("--top-p", "0"): "expected a number above 0, got '0'",
            ("--top-p", "1.5"): "a number of 0..1, got '1.5'",
            ("--min-p", "-1"): "a number of 0..1, got '-1'",
            ("--seed", "one"): "got 'one'",
            ("--seed", "-1"): "an integer of at least 0, got '-1'",
            ("--seed", "9223372036854775808"): "got '9223372036854775808'",
            ("--batch", "0"): "an integer of 1..4096, got '0'",
            ("--stop", ""): "expected a text, got an empty one",
            ("--stop", r"a\q"): r"or \xHH, got '\q'",
            ("--stop", r"\xg0"): r"or \xHH, got '\xg0'",
            ("--stop", "end\\"): "or \\xHH, got '\\'",
            ("--logprobs", "3"): "needs --json",
            ("--device", "tpu"): "expected auto, cpu, cuda or cuda:<index>, got 'tpu'",
            ("--device", "cuda:x"): "got 'cuda:x'",
        }
        for arguments, message in cases.items():
            with self.subTest(arguments):
                result = run_with_plugin("generate", "-m", baseline, "-p", "a", *arguments)
                self.assert_fails(result, USAGE, arguments[0], message)

    def test_missing_options(self):
        self.assert_fails(run("generate", "-p", "a"), USAGE, "--model is missing")
        self.assert_fails(run("generate", "-m", baseline), USAGE, "-p TEXT, --prompt-file F and --prompts F")
        self.assert_fails(run("tokenize"), USAGE, "--tokenizer is missing")
        self.assert_fails(run("verify", baseline), USAGE, "expected MODEL, REFERENCE (see --help)")

    def test_options_given_twice(self):
        result = run_with_plugin("generate", "-m", baseline, "-p", "a", "-p", "b")
        self.assert_fails(result, USAGE, "--prompt is given twice")
        self.assert_fails(run_with_plugin("generate", "-m", baseline, "-pa", "-n", "4", "-n4"), USAGE, "--tokens is given twice")

    def test_unreadable_prompt_file(self):
        for path in (folder / "none", folder):
            result = run_with_plugin("generate", "-m", baseline, "--prompt-file", path)
            self.assert_fails(result, USAGE, f"{path}: cannot be read")


class Models(HostTestCase):
    def test_missing_folder(self):
        self.assert_fails(generate(folder / "none"), MODEL, "none/bundle.json: cannot be read", "traced_models/export.py")
        self.assert_fails(run_with_plugin("verify", folder / "none", baseline), MODEL, "bundle.json")
        self.assert_fails(generate("two\nlines"), MODEL, "two lines/bundle.json: cannot be read")

    def test_truncated_and_foreign_models(self):
        bundle = copy_of(baseline, "truncated")
        data = (bundle / "model.pt").read_bytes()
        (bundle / "model.pt").write_bytes(data[: len(data) // 2])
        self.assert_fails(generate(bundle), MODEL, "model.pt", "SHA-256")
        for replaced, message in ((data[: len(data) // 2], "model.pt"), (b"GGUF" + bytes(1000), "model.pt: not a TorchScript file")):
            (bundle / "model.pt").write_bytes(replaced)
            edit_description(bundle, sha256={"model.pt": hashlib.sha256(replaced).hexdigest()})
            self.assert_fails(generate(bundle), MODEL, message)

    def test_prompt_longer_than_the_context(self):
        result = run_with_plugin("generate", "-m", baseline, "-p", "x" * 257)
        self.assert_fails(result, MODEL, "the prompt has 257 tokens, the model's context is 256")
        self.assertEqual(result.stdout, b"")

    def test_tokenizer_of_another_model(self):
        bundle = copy_of(baseline, "larger-vocabulary", vocab_size=100)
        result = run_with_plugin("generate", "-m", bundle, "-p", "x")
        self.assert_fails(result, MODEL, "token id 120 is outside the model's vocabulary of 100")

    def test_a_module_is_no_language_model(self):
        bundle = copy_of(module, "module")
        for name in ("vocab.json", "merges.txt"):
            shutil.copy(baseline / name, bundle)
        self.assert_fails(generate(bundle), MODEL, "no language model")


class Plugins(HostTestCase):
    def test_found_by_default_beside_the_program_or_in_lib(self):
        for place in ("bin", "lib"):
            with self.subTest(place):
                tree = folder / f"tree-{place}"
                (tree / "bin").mkdir(parents=True)
                (tree / "lib").mkdir()
                shutil.copy(HOST, tree / "bin" / "warpfuse")
                shutil.copy(PLUGIN, tree / place / "libwarpfuse.so")
                path = self.json_of(run("info", "--json", host=tree / "bin" / "warpfuse"))["plugin"]["path"]
                self.assertTrue(os.path.samefile(path, tree / place / "libwarpfuse.so"))

    def test_no_plugin(self):
        lonely = lonely_host("lonely")
        arguments = ("generate", "-p", "a", "-n", "1", "-m")
        self.assert_fails(run(*arguments, fused, host=lonely), PLUGIN_ERROR, "no plugin", "--plugin")
        self.assert_fails(run("info", host=lonely), PLUGIN_ERROR, "no plugin")
        # Tokens are drawn by the plugin, whatever the variant; to compare needs none.
        self.assert_fails(run(*arguments, baseline, host=lonely), PLUGIN_ERROR, "no plugin", "--plugin")
        self.assert_ok(run("verify", baseline, baseline, "-n", "1", host=lonely))

    def test_named_plugin_is_not_there(self):
        self.assert_fails(run("info", "--plugin", folder / "none.so"), PLUGIN_ERROR, "none.so: no such file")
        self.assert_fails(run("info", "--plugin", "x" * 300), PLUGIN_ERROR, "xxx: File name too long")

    def test_not_a_library(self):
        text = write("text.so", "no library\n")
        self.assert_fails(run("info", "--plugin", text), PLUGIN_ERROR, "cannot be loaded", text)

    def test_library_without_the_operators(self):
        other = pathlib.Path(importlib.util.find_spec("torch").origin).parent / "lib" / "libc10.so"
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
        # It throws in its static initialisation, as any TORCH_LIBRARY of a namespace that is taken.
        self.assert_fails(generate(fused, "--op-library", BAD_PLUGIN), PLUGIN_ERROR, BAD_PLUGIN, "the namespace warpfuse")

    def test_operator_that_no_library_has(self):
        bundle = copy_of(fused, "needs-other", operators=["warpfuse::scaled_masked_softmax", "other::thing"])
        self.assert_fails(generate(bundle), PLUGIN_ERROR, "needs the operator other::thing")

    def test_bundle_of_another_schema_version(self):
        bundle = copy_of(fused, "future", schema_version=9)
        self.assert_fails(generate(bundle), MODEL, "schema version 9")


class Devices(HostTestCase):
    def test_gpu_that_is_not_there(self):
        request = "cuda" if not gpu_names() else f"cuda:{len(gpu_names())}"
        self.assert_fails(generate(fused, "--device", request), DEVICE_ERROR, f"--device {request}")


if __name__ == "__main__":
    main()
