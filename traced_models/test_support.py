"""What the tests of this folder share; without transformers they are reported as skipped.

test_support.py [NAMES] runs the test modules of these names in one process.
"""

import os
import sys
import unittest
import warnings

os.environ["HF_ENDPOINT"] = "http://127.0.0.1:9"  # no test reaches for the network
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

import torch

SKIPPED = 77  # ctest's SKIP_RETURN_CODE
try:
    import transformers
except ImportError:
    print("skipped: transformers is not installed")
    sys.exit(SKIPPED)

torch.set_num_threads(1)  # the models are tiny, and several tests run at once
transformers.logging.disable_progress_bar()
for category in (DeprecationWarning, FutureWarning):
    warnings.simplefilter("ignore", category)  # TorchScript's
sys.warnoptions = sys.warnoptions or ["ignore::DeprecationWarning"]  # else unittest asks for all

# The operators of other libraries that a variant's traced file calls.
OPERATORS = {
    "fused": ["warpfuse::scaled_masked_softmax"],
    "steps": [
        f"warpfuse::{name}"
        for name in ("cached_attention_softmax", "gpt2_step", "linear_residual", "norm_linear")
    ],
}


def require_plugin() -> str:
    """Load the plugin that WARPFUSE_PLUGIN names, and its path; without one the test is skipped."""
    plugin = os.environ.get("WARPFUSE_PLUGIN")
    if not plugin:
        raise unittest.SkipTest("WARPFUSE_PLUGIN names no libwarpfuse.so")
    torch.ops.load_library(plugin)
    return plugin


def main(module: str | None = "__main__") -> None:
    """Run a file's tests, or those that are named; one case that skips itself marks all as skipped."""
    result = unittest.main(module, exit=False).result
    for _, reason in result.skipped:
        print(f"skipped: {reason}")
    sys.exit(1 if not (result.wasSuccessful() and result.testsRun) else SKIPPED if result.skipped else 0)


if __name__ == "__main__":
    main(module=None)
