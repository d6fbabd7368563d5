"""fused_logprob beside losses of public kernels, which are its negative."""

import math
from collections.abc import Iterator

import torch

from .cases import Case, worst_of
from .suite import Call, Inputs, Result, Suite, installed

IGNORED = -100
MOST_ELEMENTS = 1 << 27  # of a part of the rows in float64
LOSSES = ("Liger", "QuACK")


class Logprob(Suite):
    """Forward (logits, targets), backward and both (logits, targets, what else one of them needs)."""

    directions = ("forward", "backward", "both")

    @classmethod
    def takes(cls, case: Case) -> bool:
        return super().takes(case) and case.is_matrix

    @property
    def input_bytes(self) -> int:
        return math.prod(self.case.shape) * self.case.dtype.itemsize

    def inputs(self, generator: torch.Generator) -> Inputs:
        options = {"device": self.device, "generator": generator}
        logits = self.random(generator)
        targets = torch.randint(self.case.columns, (self.case.rows,), **options)
        if self.case.forward:
            return logits, targets
        grad = torch.randn(self.case.rows, **options)
        if self.case.direction == "both":
            return logits, targets, grad, -grad
        peak = logits.amax(-1).float()
        parts = [(x - x.amax(-1, keepdim=True)).exp().sum(-1).log() for _, x in self._parts(logits)]
        rest = torch.cat(parts).float()
        return logits, targets, grad, -grad, torch.stack([peak, rest], -1), peak + rest

    def _parts(self, logits: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor]]:
        step = max(MOST_ELEMENTS // self.case.columns, 1)
        for start in range(0, self.case.rows, step):
            part = slice(start, start + step)
            yield part, logits[part].double()

    def calls(self) -> dict[str, Call]:
        makers = {"warpfuse": self.plugin, "aten": self.aten, "Liger": self.liger, "QuACK": self.quack}
        return {name: call for name, make in makers.items() if (call := make())}

    def plugin(self) -> Call:
        """Ours."""
        ops = torch.ops.warpfuse

        def backward(logits, targets, grad, _, statistics, *__):
            return ops._fused_logprob_backward(
                logits, targets, statistics, None, grad, None, None, IGNORED, 1.0, 0, "logprob"
            )

        def both(logits, targets, grad, negated):
            logprob, _, _, statistics = ops._fused_logprob(logits, targets, IGNORED, 1.0, False, 0, "logprob")
            return logprob, backward(logits, targets, grad, negated, statistics)

        forward = lambda logits, targets: ops.fused_logprob(logits, targets, IGNORED)
        return {"forward": forward, "backward": backward, "both": both}[self.case.direction]

    def aten(self) -> Call | None:
        """log_softmax and gather; its gradient, of rounded log-probabilities, is less exact than allowed here."""
        if not self.case.forward:
            return None
        return lambda logits, targets: torch.log_softmax(logits, -1).gather(-1, targets[:, None])[:, 0]

    def to_compile(self) -> Call:
        """In float32, with the gradient from the logits, so that no log_softmax is stored."""

        def logprob(logits, targets):
            return torch.log_softmax(logits.float(), -1).gather(-1, targets[:, None])[:, 0]

        def gradient(logits, targets, grad, lse):
            hit = torch.arange(logits.shape[-1], device=logits.device) == targets[:, None]
            return (grad[:, None] * (hit.float() - (logits.float() - lse[:, None]).exp())).to(logits.dtype)

        def backward(logits, targets, grad, _, __, lse):
            return gradient(logits, targets, grad, lse)

        def both(logits, targets, grad, _):
            lse = torch.logsumexp(logits.float(), -1)
            shown = logits.gather(-1, targets[:, None])[:, 0].float() - lse
            return shown, gradient(logits, targets, grad, lse)

        return {"forward": logprob, "backward": backward, "both": both}[self.case.direction]

    def liger(self) -> Call | None:
        """Its kernel without gradients; with them it overwrites the logits, and needs the loss's scale at once."""
        module = installed("liger_kernel.ops.cross_entropy")
        if not module or not self.case.forward:
            return None
        import triton

        rows, columns = self.case.shape
        settings = {
            "weight_ptr": None, "z_loss_ptr": None, "token_accuracy_ptr": None, "token_accuracy_stride": 0,
            "predicted_tokens_ptr": None, "predicted_tokens_stride": 0, "n_cols": columns, "n_non_ignore": rows,
            "sum_non_ignore_weight": rows, "ignore_index": IGNORED, "weight_sum": 0.0, "lse_square_scale": 0.0,
            "label_smoothing": 0.0, "reduction": "none", "softcap": None, "RETURN_Z_LOSS": False,
            "RETURN_TOKEN_ACCURACY": False, "RETURN_PREDICTED_TOKENS": False, "HAS_WEIGHT": False,
            "HAS_SOFTCAPPING": False, "HAS_GRADIENTS": False, "num_warps": 32,
            "BLOCK_SIZE": min(module.MAX_FUSED_SIZE, triton.next_power_of_2(columns)),
        }  # fmt: skip

        def forward(logits, targets):
            loss = torch.zeros(rows, dtype=logits.dtype, device=logits.device)
            module.liger_cross_entropy_kernel[(rows,)](
                X_ptr=logits, X_stride=columns, Y_ptr=targets, Y_stride=1, loss_ptr=loss, loss_stride=1, **settings
            )
            return loss

        return forward

    def quack(self) -> Call | None:
        """The kernels of its autograd function."""
        kernels = installed("quack.cross_entropy")
        if not kernels:
            return None

        def backward(logits, targets, _, negated, __, lse):
            return kernels.cross_entropy_bwd(logits, targets, negated, lse)

        def both(logits, targets, _, negated):
            loss, lse = kernels.cross_entropy_fwd(logits, targets, return_lse=True)
            return loss, kernels.cross_entropy_bwd(logits, targets, negated, lse)

        return {"forward": kernels.cross_entropy_fwd, "backward": backward, "both": both}[self.case.direction]

    def as_asked(self, name: str, result: Result) -> Result:
        """Negated for the comparison alone: in a call it would be one kernel more."""
        if name not in LOSSES or self.case.direction == "backward":
            return result
        return -result if self.case.forward else (-result[0], result[1])

    def error(self, inputs: Inputs, result: Result) -> float:
        logits, targets, *more = inputs
        results = result if isinstance(result, tuple) else (result,)
        shown = None if self.case.direction == "backward" else results[0]
        gradient = None if self.case.forward else results[-1]
        if shown is not None and (shown.shape != targets.shape or shown.dtype not in (torch.float32, logits.dtype)):
            return math.inf
        if gradient is not None and not self.fits(gradient):
            return math.inf
        worst = [0.0]
        for part, x in self._parts(logits):
            target = targets[part, None]
            log_probs = torch.log_softmax(x, -1)
            if shown is not None:
                right = log_probs.gather(-1, target)[:, 0]
                worst.append(worst_of(shown[part], right, right.abs() + 1))
            if gradient is not None:
                grad, powers = more[0][part, None].double(), log_probs.exp_()
                right = (-powers).scatter_add_(-1, target, torch.ones_like(grad)) * grad
                magnitude = powers.scatter_add_(-1, target, torch.ones_like(grad)) * grad.abs()
                worst.append(worst_of(gradient[part], right, magnitude))
        return max(worst) if not any(math.isnan(error) for error in worst) else math.nan
