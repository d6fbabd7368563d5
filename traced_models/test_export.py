#!/usr/bin/env python3
"""The exporter's command line: the bundles that it writes, and what it refuses."""

import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from test_support import OPERATORS, main, require_plugin  # first: it may skip the whole file

# isort: split
import export
from end_tokens import find_end_tokens
from errors import ModelError
from tokenizer_files import byte_tokenizer
from tracing import deserialize, foreign_operators

HERE = Path(__file__).resolve().parent
TINY = {"model_type": "gpt2", "vocab_size": 300, "n_positions": 40, "n_embd": 24, "n_layer": 2, "n_head": 3}


def run(*arguments: object) -> tuple[int, str, str]:
    """export.py in this process: exit code, stdout, stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = export.main([str(argument) for argument in arguments])
    return code, out.getvalue(), err.getvalue()


class Case(unittest.TestCase):
    """A test with a folder of its own, and a config.json in it."""

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(TemporaryDirectory()))
        self.config = self.write("tiny.json", TINY)

    def write(self, name: str, content: object) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path


class Bundles(Case):
    """What a bundle folder holds."""

    def export(self, source: str, *options: object, said: str = "") -> dict[str, Path]:
        code, out, err = run(source, "-o", self.folder / "out", *options)
        self.assertEqual((code, err), (0, said))
        return {Path(line).name: Path(line) for line in out.splitlines()}

    def modules(self, source: str, *options: object) -> dict[str, tuple[dict, torch.nn.Module, torch.Tensor]]:
        """Description, module and the same input of each bundle, by variant."""
        found = {}
        for name, folder in self.export(source, "--plugin", require_plugin(), *options).items():
            description = json.loads((folder / "bundle.json").read_text())
            self.assertEqual(description["kind"], "module")
            (entry,) = description["inputs"]
            torch.manual_seed(1)
            x = torch.randn(entry["shape"]) * entry["std"]
            found[name.removesuffix("-float32")] = description, deserialize((folder / "model.pt").read_bytes()), x
        return found

    def test_every_variant_and_dtype(self) -> None:
        plugin = require_plugin()
        dtypes = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
        bundles = self.export(
            f"config:{self.config}", "--plugin", plugin, "--dtype", ",".join(dtypes),
            said=export.RECOMMENDATION + "\n",
        )  # fmt: skip
        names = {f"{v}-{d}" for v in ("baseline", "fused", "sdpa", "steps") for d in dtypes}
        methods = ["forward", "prefill", "decode"]
        self.assertEqual(set(bundles), names)
        for name, folder in bundles.items():
            variant, dtype = name.split("-")
            files = {path.name for path in folder.iterdir()}
            self.assertEqual(
                files, {"model.pt", "bundle.json", "config.json", "vocab.json", "merges.txt"}
            )
            data = (folder / "model.pt").read_bytes()
            expected = {
                **{"format": 2, "kind": "causal_lm", "model": "tiny", "variant": variant, "dtype": dtype},
                **{"context": 40, "layers": 2, "heads": 3, "head_dim": 8, "vocab_size": 300},
                "schema_version": 1,
                "operators": OPERATORS.get(variant, []),
                "methods": [*methods, "next"] if variant == "steps" else methods,
                "softmax_calls_per_step": 2,
                "torch": torch.__version__.split("+")[0],
                "sha256": {"model.pt": hashlib.sha256(data).hexdigest()},
            }
            self.assertEqual(json.loads((folder / "bundle.json").read_text()), expected)
            self.assertEqual(json.loads((folder / "config.json").read_text()), TINY)
            cache = torch.zeros(2, 2, 1, 3, 9, 8, dtype=dtypes[dtype])
            ids = torch.arange(4)[None]
            logits = deserialize(data)(ids, ids, cache)
            self.assertEqual((logits.shape, logits.dtype), ((1, 4, 300), dtypes[dtype]))

    def test_end_tokens(self) -> None:
        def ends(config: dict, generation: dict | None) -> object:
            folder = self.write("ending/config.json", TINY | config).parent
            (folder / "generation_config.json").unlink(missing_ok=True)
            if generation is not None:
                self.write("ending/generation_config.json", generation)
            return find_end_tokens(TINY | config, folder, TINY["vocab_size"])

        self.assertIsNone(ends({}, None))
        self.assertIsNone(ends({"eos_token_id": None}, {}))
        self.assertEqual(ends({"eos_token_id": 7}, None), [7])
        self.assertEqual(ends({"eos_token_id": 7}, {"eos_token_id": [8, 9]}), [8, 9])
        self.assertEqual(ends({"eos_token_id": 7}, {"eos_token_id": None}), [7])
        config = self.write("ends.json", TINY | {"eos_token_id": [7, 9]})
        (folder,) = self.export(f"config:{config}", "--variants", "baseline").values()
        self.assertEqual(json.loads((folder / "bundle.json").read_text())["end_tokens"], [7, 9])

    def test_added_tokens(self) -> None:
        """From each of the files that Hugging Face's tokenizers write them to."""
        vocab = byte_tokenizer(257)["vocab.json"].decode()
        folder = self.write("tokenizer/vocab.json", vocab).parent
        self.write("tokenizer/merges.txt", "#version: 0.2\n")
        self.write("tokenizer/added_tokens.json", {"<one>": 257})
        added = {"id": 258, "content": "<two>", "special": True, "lstrip": False}
        self.write("tokenizer/tokenizer.json", {"added_tokens": [added]})
        special = {"pad_token": "<one>", "eos_token": {"content": "<|endoftext|>"}, "more": ["!"]}
        self.write("tokenizer/special_tokens_map.json", special)
        (bundle,) = self.export(
            f"config:{self.config}", "--variants", "baseline", "--tokenizer", folder
        ).values()
        tokens = json.loads((bundle / "added_tokens.json").read_text())
        self.assertEqual(tokens, {"<one>": 257, "<two>": 258, "!": 0})

    def test_softmax_module(self) -> None:
        modules = self.modules("module:softmax")
        operators = {name: description["operators"] for name, (description, _, _) in modules.items()}
        self.assertEqual(operators, {"baseline": [], "fused": ["warpfuse::softmax"]})
        torch.testing.assert_close(*(module(x) for _, module, x in modules.values()), rtol=0, atol=1e-6)

    def test_linear_dropout_softmax_module(self) -> None:
        results = {}
        for name, (_, module, x) in self.modules("module:linear-dropout-softmax").items():
            calls = results[name] = []
            for seed in (1, 1, 2):
                torch.manual_seed(seed)
                calls.append(module(x))
            # In training a seed repeats a call, and another seed drops other elements.
            self.assertTrue(torch.equal(calls[0], calls[1]))
            self.assertEqual(torch.equal(calls[0], calls[2]), "train" not in name)
        self.assertEqual(set(results), {"baseline", "fused", "baseline-train", "fused-train"})
        for mode in ("", "-train"):
            torch.testing.assert_close(results["fused" + mode], results["baseline" + mode], rtol=1e-5, atol=1e-8)
        self.assertFalse(torch.allclose(results["fused"][0], results["fused-train"][0], rtol=1e-2))

    def test_sizes_of_the_linear_layer(self) -> None:
        sizes = ("--in-features", "48", "--out-features", "72")
        ((_, module, x),) = self.modules("module:linear-dropout-softmax", "--variants", "fused", *sizes).values()
        self.assertEqual((x.shape, module(x[:3]).shape), ((128, 48), (3, 72)))

    def test_deformable_detr_module(self) -> None:
        """Both variants agree, and other features give another result."""
        results = {}
        for name, (description, module, x) in self.modules("module:deformable-detr").items():
            self.assertEqual(description["softmax_calls_per_step"], 4)
            results[name] = module(x)
            self.assertFalse(torch.equal(module(x.roll(1, dims=1)), results[name]))
        torch.testing.assert_close(results["fused"], results["baseline"], rtol=1e-4, atol=1e-5)

    def test_the_seed_decides_random_weights(self) -> None:
        models = []
        for seed in (1, 1, 2):
            options = ("--variants", "baseline", "--seed", seed)
            folder = self.export(f"config:{self.config}", *options)["baseline-float32"]
            state = deserialize((folder / "model.pt").read_bytes()).state_dict()
            models.append(state["transformer.wte.weight"])
        self.assertTrue(torch.equal(models[0], models[1]))
        self.assertFalse(torch.equal(models[0], models[2]))


class Refusals(Case):
    """One line on stderr, and the documented exit code."""

    def refuse(self, code: int, words: str, *arguments: object, out: object = None) -> None:
        target = [] if out == "" else ["-o", out or self.folder / "out"]
        with self.subTest(arguments=arguments):
            got, _, err = run("--variants", "baseline", *arguments, *target)
            self.assertEqual(got, code, err)
            self.assertRegex(err, r"\Aexport\.py: [^\n]+\n\Z")
            self.assertIn(words, err)
            self.assertFalse((self.folder / "out").exists(), "something was written")

    def test_usage(self) -> None:
        source = f"config:{self.config}"
        self.refuse(2, "-o", source, out="")
        self.refuse(2, "unknown variant 'flash'", source, "--variants", "flash")
        self.refuse(2, "unknown dtype 'int8'", source, "--dtype", "int8")
        self.refuse(2, "module:softmax has no --in-features", "module:softmax", "--in-features", "9")
        self.refuse(2, "'0' is no positive number", "module:softmax", "--out-features", "0")
        self.refuse(2, "no variant given", source, "--variants", ",")
        self.refuse(2, "invalid int value", source, "--seed", "x")
        self.refuse(2, "unrecognized arguments: --fast", source, "--fast")
        self.refuse(2, "expected gpt2, distilgpt2, tiny", "config:gpt5")
        self.refuse(2, "known: module:softmax, module:linear-dropout-softmax, ", "module:gelu")
        self.refuse(2, "cannot write", source, "--variants", "sdpa", out=self.config / "below")

    def test_configs(self) -> None:
        for change, words in (
            ({"model_type": "llama"}, "expected model_type gpt2, got llama"),
            ({"n_head": 5}, "n_embd 24 is no multiple of n_head 5"),
            ({"n_layer": "two"}, "n_layer must be a positive integer, got 'two'"),
            ({"n_positions": 0}, "n_positions must be a positive integer, got 0"),
            ({"activation_function": "mish"}, "activation 'mish'"),
            ({"reorder_and_upcast_attn": True}, "reorder_and_upcast_attn is not supported"),
            ({"layer_norm_epsilon": "small"}, "layer_norm_epsilon must be a number, got 'small'"),
            ({"vocab_size": "many"}, "vocab_size must be a positive integer, got 'many'"),
            ({"vocab_size": 100}, "no room for 256 bytes"),
            ({"eos_token_id": 300}, "eos_token_id must be token ids below vocab_size 300, got 300"),
            ({"eos_token_id": [1, "2"]}, "eos_token_id must be token ids"),
        ):
            self.refuse(3, words, f"config:{self.write('bad.json', TINY | change)}")
        self.refuse(3, "no JSON", f"config:{self.write('bad.json', '{')}")
        self.refuse(3, "expected a JSON object", f"config:{self.write('bad.json', [1])}")
        self.refuse(3, "No such file", f"config:{self.folder}/absent.json")

    def test_folders(self) -> None:
        self.refuse(3, "no such folder", self.folder / "absent")
        self.refuse(3, "got a file", self.config)
        self.refuse(3, "no vocab.json with merges.txt", self.folder)
        model = self.write("model/config.json", TINY).parent
        self.write("model/tokenizer.json", {"model": {"type": "Unigram"}})
        self.refuse(3, "expected a BPE tokenizer", model)
        self.write("model/tokenizer.json", '{"model"')
        self.refuse(3, "tokenizer.json", model)
        (model / "tokenizer.json").unlink()
        self.write("model/vocab.json", {"a": 0})
        self.write("model/merges.txt", "#version: 0.2\n")
        self.refuse(3, "neither model.safetensors nor pytorch_model.bin", model)
        self.write("model/model.safetensors.index.json", "{}")
        self.refuse(3, "weight_map", model)

    def test_vocabularies(self) -> None:
        for vocabulary, words in (
            ({"a": 300}, "id 300, but the model's vocab_size is 300"),
            ({"a": "b"}, "no vocabulary"),
            ({}, "no vocabulary"),
            ([1], "no vocabulary"),
            ("{", "no vocabulary"),
        ):
            folder = self.write("tokenizer/vocab.json", vocabulary).parent
            self.write("tokenizer/merges.txt", "#version: 0.2\n")
            self.refuse(3, words, f"config:{self.config}", "--tokenizer", folder)
        self.write("tokenizer/vocab.json", {"a": 0})
        for name, content, words in (
            ("added_tokens.json", {"<x>": 300}, "added_tokens.json has id 300"),
            ("tokenizer.json", {"added_tokens": [{"content": "<x>", "lstrip": True}]}, "lstrip is"),
            ("special_tokens_map.json", {"pad_token": "<x>"}, "pad_token '<x>' has no id"),
            ("special_tokens_map.json", {"pad_token": 3}, "expected a token, got 3"),
        ):
            file = self.write(f"tokenizer/{name}", content)
            self.refuse(3, words, f"config:{self.config}", "--tokenizer", folder)
            file.unlink()

    def test_a_method_that_names_a_device(self) -> None:
        class Adds(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x + torch.zeros(()).to(x)

        traced = torch.jit.trace(Adds(), torch.ones(2))
        with self.assertRaisesRegex(ModelError, "forward names the device cpu"):
            foreign_operators(traced, ["forward"])

    def test_plugins(self) -> None:
        source = f"config:{self.config}"
        self.refuse(4, "no such operator library", source, "--plugin", self.folder / "absent.so")
        text = self.write("text.so", "not a library")
        self.refuse(4, "cannot load", source, "--plugin", text)

    def test_fused_without_a_plugin(self) -> None:
        """In a process of its own: a library once loaded stays."""
        command = [sys.executable, str(HERE / "export.py"), "config:tiny", "-o", "/nonexistent/x"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 4)
        self.assertRegex(done.stderr, r"\Aexport\.py: the fused variant needs [^\n]+\n\Z")

    def test_hub_name_without_a_network(self) -> None:
        self.assertEqual(os.environ["HF_ENDPOINT"], "http://127.0.0.1:9")  # nothing answers there
        self.refuse(3, "the hub did not deliver it", "nobody/no-such-model-of-warpfuse")


if __name__ == "__main__":
    main()
