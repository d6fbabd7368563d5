"""Models of fused_logprob."""

import torch
from torch import Tensor

from formulas import flat, plain_softmax


class LogprobInputs(torch.nn.Module):
    """Logits and targets, one of them ignored; what every form gives, in float64."""

    def __init__(self):
        super().__init__()
        self.register_buffer("logits", torch.randn(2, 3, 7))
        self.register_buffer("targets", torch.tensor([[0, 6, 3], [-7, 2, 2]]))
        logits = self.logits.double() / 0.8
        self.p = plain_softmax(logits, -1)
        self.counts = (self.targets != -7).double()
        self.one_hot = torch.nn.functional.one_hot(self.targets.clamp(min=0), 7).double()
        self.logprob = (self.p.log() * self.one_hot).sum(-1) * self.counts
        self.lse = logits.exp().sum(-1).log()
        self.entropy = -(self.p * self.p.log()).sum(-1) * self.counts
        maximum = self.logits.double().amax(-1)
        self.statistics = torch.stack([maximum, self.lse - maximum / 0.8], -1)


class FusedLogprob(LogprobInputs):
    def __init__(self):
        super().__init__()
        self.register_buffer("expected", self.logprob)

    def forward(self) -> Tensor:
        return torch.ops.warpfuse.fused_logprob(self.logits, self.targets, -7, 0.8, True)


class FusedLogprobLse(LogprobInputs):
    def __init__(self):
        super().__init__()
        self.register_buffer("expected", flat(self.logprob, self.lse))
        self.targets += 100 * (self.targets != -7)

    def forward(self) -> Tensor:
        logprob, lse = torch.ops.warpfuse.fused_logprob_lse(
            self.logits, self.targets, -7, 0.8, True, 100
        )
        return torch.cat([logprob.flatten(), lse.flatten()])


class FusedLogprobEntropy(LogprobInputs):
    def __init__(self):
        super().__init__()
        self.register_buffer("expected", flat(self.logprob, self.entropy))

    def forward(self) -> Tensor:
        logprob, entropy = torch.ops.warpfuse.fused_logprob_entropy(
            self.logits, self.targets, -7, 0.8, True
        )
        return torch.cat([logprob.flatten(), entropy.flatten()])


class FusedLogprobStatistics(LogprobInputs):
    def __init__(self):
        super().__init__()
        self.register_buffer("expected", flat(self.logprob, self.lse, self.statistics))

    def forward(self) -> Tensor:
        logprob, lse, entropy, statistics = torch.ops.warpfuse._fused_logprob(
            self.logits, self.targets, -7, 0.8, True, 0, "lse"
        )
        return torch.cat(
            [logprob.flatten(), lse.flatten(), entropy.flatten(), statistics.flatten()]
        )


class LogprobBackwardInputs(LogprobInputs):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", self.statistics.float())
        self.register_buffer("kept_entropy", self.entropy.float())
        self.register_buffer("grad", torch.randn(2, 3))
        self.register_buffer("grad_entropy", torch.randn(2, 3))
        of_logprob = (self.grad.double() * self.counts).unsqueeze(-1)
        of_entropy = (self.grad_entropy.double() * self.counts).unsqueeze(-1)
        inner = self.p.log() + self.entropy.unsqueeze(-1)
        gradient = of_logprob * (self.one_hot - self.p) - of_entropy * self.p * inner
        self.register_buffer("expected", gradient / 0.8)


class FusedLogprobBackward(LogprobBackwardInputs):
    def forward(self) -> Tensor:
        return torch.ops.warpfuse._fused_logprob_backward(
            self.logits, self.targets, self.kept, self.kept_entropy, self.grad, None,
            self.grad_entropy, -7, 0.8, 0, "entropy"
        )


class FusedLogprobBackwardInPlace(LogprobBackwardInputs):
    def forward(self) -> Tensor:
        logits = self.logits.clone()
        torch.ops.warpfuse._fused_logprob_backward_(
            logits, self.targets, self.kept, self.kept_entropy, self.grad, None,
            self.grad_entropy, -7, 0.8, 0, "entropy"
        )
        return logits
