#!/usr/bin/env python3
"""The command `warpfuse rewrite`: its exit codes, what it refuses, and the model of the demo.

Needs WARPFUSE_HOST and WARPFUSE_PLUGIN. Exit code 77: transformers is not installed."""

import os
import subprocess
import sys
import unittest
import warnings
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

if find_spec("transformers") is None:
    print("skipped: transformers is not installed")
    sys.exit(77)

warnings.simplefilter("ignore")
ROOT = Path(__file__).resolve().parents[2]
HOST, PLUGIN = os.environ["WARPFUSE_HOST"], os.environ["WARPFUSE_PLUGIN"]


class Command(unittest.TestCase):
    def setUp(self) -> None:
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.model = self.folder / "model.pt"
        torch.jit.trace(nn.Softmax(-1), torch.ones(2, 3)).save(str(self.model))

    def run_rewrite(self, *arguments: object) -> tuple[int, str]:
        return self.run_host("rewrite", *arguments)

    def run_host(self, *arguments: object) -> tuple[int, str]:
        command = [HOST, *map(str, arguments), "--plugin", PLUGIN]
        result = subprocess.run(command, capture_output=True, check=False)
        return result.returncode, result.stdout.decode() + result.stderr.decode()

    def test_the_model_of_the_demo(self) -> None:
        tokenizer, path = ROOT / "traced_models" / "wikitext-small", self.folder / "gpt2.pt"
        trace = [sys.executable, "-B", ROOT / "scripts" / "trace_gpt2.py", tokenizer, "cpu", path]
        subprocess.run(trace, check=True)
        routed = "4 of 4 softmax calls routed to the plugin"
        for command in (
            ("verify", "--rewrite", path, path, "--input", "B,T:int64:0..4096", "--batch", "1,3", "--lengths", "1,256,257"),
            ("generate", "--rewrite", "-m", path, "--tokenizer", tokenizer, "-p", "The river", "-n", 3),
        ):  # fmt: skip
            code, text = self.run_host(*command, "--device", "cpu")
            self.assertEqual(code, 0, text)
            self.assertIn(routed, text)
            self.assertIn("both raise in 2 of 6" if command[0] == "verify" else "plugin: 12 of 12 softmax calls", text)

    def test_freeze(self) -> None:
        module = torch.jit.trace(nn.Sequential(nn.Linear(3, 3), nn.Softmax(-1)), torch.ones(2, 3))
        path, out = self.folder / "linear.pt", self.folder / "frozen.pt"
        module.save(str(path))
        self.assertEqual(self.run_rewrite(path, out, "--freeze", "--require", 1)[0], 0)
        torch.ops.load_library(PLUGIN)
        frozen, x = torch.jit.load(out), torch.randn(4, 3)
        self.assertEqual(list(frozen.parameters()), [])
        torch.testing.assert_close(frozen(x), module(x))

    def test_codes(self) -> None:
        out = self.folder / "out.pt"
        code, text = self.run_rewrite(self.model, out, "--require", 2)
        self.assertEqual(code, 1, text)
        self.assertFalse(out.exists())
        code, text = self.run_rewrite(self.model, self.folder / "." / "model.pt", "--force")
        self.assertEqual((code, "OUT is IN" in text), (2, True), text)
        code, text = self.run_rewrite(self.model, self.folder, "--force")
        self.assertEqual((code, "OUT contains IN" in text), (2, True), text)
        code, text = self.run_rewrite(self.model, "--dry-run")
        self.assertEqual(code, 0, text)
        self.assertIn("1 of 1 softmax calls routed", text)
        self.assertEqual(self.run_rewrite(self.model, out)[0], 0)
        code, text = self.run_rewrite(self.model, out)
        self.assertEqual(code, 2, text)
        self.assertIn("--force", text)
        code, text = self.run_rewrite(out, "--dry-run")
        self.assertIn("0 of 0 softmax calls routed to the plugin, 1 were there", text)
        no_model = self.folder / "text.pt"
        no_model.write_text("text")
        self.assertEqual(self.run_rewrite(no_model, "--dry-run")[0], 3)
        self.assertEqual(self.run_rewrite(self.model, self.folder / "no" / "out.pt")[0], 6)

    def test_an_operator_of_no_library(self) -> None:
        library = torch.library.Library("warpfuse_test_unknown", "DEF")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: 2 * x, "CompositeExplicitAutograd")
        module = torch.jit.trace(torch.ops.warpfuse_test_unknown.twice, torch.ones(2))
        path = self.folder / "unknown.pt"
        module.save(str(path))
        code, text = self.run_rewrite(path, "--dry-run")
        self.assertEqual(code, 4, text)
        self.assertIn("warpfuse_test_unknown::twice", text)


if __name__ == "__main__":
    unittest.main()
