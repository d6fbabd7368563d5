"""Which operators have peers, and all implementations of a case by name."""

import importlib.metadata

import torch
from report.run import Row

from .cases import Case, case_of
from .deform import UNIFORM, Deform
from .dropout import DROPOUT_FIRST, MASKED_DROPOUT, SOFTMAX_FIRST, Dropout
from .linear_dropout import LinearDropout
from .logprob import Logprob
from .sampling import Sampling
from .softmax import LOG, MASKED, Softmax
from .suite import Call, Suite, installed

SUITES: dict[str, type[Suite]] = {
    "softmax": Softmax,
    LOG: Softmax,
    MASKED: Softmax,
    "fused_logprob": Logprob,
    "ms_deform_attn": Deform,
    UNIFORM: Deform,
    DROPOUT_FIRST: Dropout,
    SOFTMAX_FIRST: Dropout,
    MASKED_DROPOUT: Dropout,
    "linear_dropout_softmax": LinearDropout,
    "sample_tokens": Sampling,
}
COMPILE_MODES = {"torch.compile": None, "torch.compile max-autotune": "max-autotune-no-cudagraphs"}
# And the module of each.
PACKAGES = {
    "triton": "triton",
    "liger-kernel": "liger_kernel",
    "quack-kernels": "quack",
    "transformers": "transformers",
}


def has_peers(row: Row) -> bool:
    """Whether a row can be measured here."""
    suite = SUITES.get(row.key.operator)
    return suite is not None and suite.takes(case_of(row))


def suite_of(case: Case, device: torch.device) -> Suite:
    """The operator of a case."""
    return SUITES[case.operator](case, device)


def calls_of(suite: Suite) -> dict[str, Call]:
    """By name, ours first; those that cannot take a case at all are left out."""
    torch._dynamo.reset()  # the code of the last case, which would count as recompilation
    call = suite.to_compile()
    compiled = {
        name: torch.compile(call, mode=mode, dynamic=False, fullgraph=True) for name, mode in COMPILE_MODES.items()
    }
    return suite.calls() | compiled


def versions() -> dict[str, str]:
    """What was compared; what is not installed, or not to be imported, says so."""
    found = {"torch": torch.__version__}
    for package, module in PACKAGES.items():
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
        else:
            if installed(module) is None:
                found[package] += ", which cannot be imported"
    return found
