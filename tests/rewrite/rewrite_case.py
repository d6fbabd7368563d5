"""What the tests of `warpfuse rewrite` on traced models share. Needs WARPFUSE_HOST and
WARPFUSE_PLUGIN."""

import json
import os
import subprocess
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

HOST, PLUGIN = os.environ["WARPFUSE_HOST"], os.environ["WARPFUSE_PLUGIN"]


class RewriteCase(unittest.TestCase):
    """A traced model before and after `warpfuse rewrite`."""

    def setUp(self) -> None:
        torch.manual_seed(1)
        torch.ops.load_library(PLUGIN)
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def rewrite(self, model: nn.Module, example: tuple[Tensor, ...], *options: str) -> list[dict]:
        """Sets self.traced and self.rewritten; the report of each softmax."""
        before = self.folder / "before.pt"
        model = model.eval().requires_grad_(False)
        torch.jit.trace(model, example, check_trace=False).save(str(before))
        return self.rewrite_file(before, *options)

    def rewrite_file(self, before: Path, *options: str) -> list[dict]:
        """The same of a file."""
        after = self.folder / "after.pt"
        command = [HOST, "rewrite", before, after, "--plugin", PLUGIN, "--report", "json", "--force"]
        result = subprocess.run([*command, *options], capture_output=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        self.traced, self.rewritten = torch.jit.load(before), torch.jit.load(after)
        self.report = json.loads(result.stdout)
        return self.report["calls"]

    def assert_equal(self, *arguments: Tensor, rtol: float = 1e-4, atol: float = 1e-5) -> None:
        """The same result, or an error of both."""
        results = []
        for module in (self.traced, self.rewritten):
            try:
                results.append(module(*arguments))
            except RuntimeError:
                results.append(None)
        expected, got = results
        self.assertEqual(expected is None, got is None)
        if expected is not None:
            self.assertEqual(got.dtype, expected.dtype)
            torch.testing.assert_close(got, expected, rtol=rtol, atol=atol)

    def assert_routed(self, calls: list[dict], *expected: tuple[str, str]) -> None:
        """Operator and mask of each call."""
        self.assertEqual([(call["after"], call["mask"]) for call in calls], list(expected))
