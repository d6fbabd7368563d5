"""What the tests of `warpfuse rewrite` on traced models share. Needs WARPFUSE_HOST and
WARPFUSE_PLUGIN."""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "host"))
from host_program import PLUGIN, HostTestCase, folder, run_with_plugin  # noqa: E402


class RewriteCase(HostTestCase):
    """A traced model before and after `warpfuse rewrite`."""

    def setUp(self) -> None:
        torch.manual_seed(1)
        torch.ops.load_library(PLUGIN)

    def rewrite(self, model: nn.Module, example: tuple[Tensor, ...], *options: str) -> list[dict]:
        """Sets self.traced and self.rewritten; the report of each softmax."""
        before = folder / "before.pt"
        model = model.eval().requires_grad_(False)
        torch.jit.trace(model, example, check_trace=False).save(str(before))
        return self.rewrite_file(before, *options)

    def rewrite_file(self, before: Path, *options: str) -> list[dict]:
        """The same of a file."""
        after = folder / "after.pt"
        self.report = self.json_of(run_with_plugin("rewrite", before, after, "--report", "json", "--force", *options))
        self.traced, self.rewritten = torch.jit.load(before), torch.jit.load(after)
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
