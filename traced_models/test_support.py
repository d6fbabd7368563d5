"""What the tests of this folder share; without transformers a test file is reported as skipped."""

import os
import sys
import unittest
import warnings

os.environ["HF_ENDPOINT"] = "http://127.0.0.1:9"  # no test reaches for the network
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

import torch

try:
    import transformers
except ImportError:
    print("skipped: transformers is not installed")
    sys.exit(77)

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
