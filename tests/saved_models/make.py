"""Writes a tiny TorchScript model for each operator of the plugin that has none here yet.

    python make.py .../libwarpfuse.so

A model that is here stays as it is: each must load and run with every later version of the plugin,
so it is never made anew. `forward()` takes nothing and calls the operator on tensors kept in the
file; `expected`, float64, is the result by plain formulas.
"""

import pathlib
import sys

import torch
from torch import Tensor

FOLDER = pathlib.Path(__file__).resolve().parent


class Softmax(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("x", torch.randn(3, 5))
        self.register_buffer("expected", plain_softmax(self.x.double(), 1))

    def forward(self) -> Tensor:
        return torch.ops.warpfuse.softmax(self.x, -1, None)


class LogSoftmax(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("x", torch.randn(3, 5))
        self.register_buffer("expected", plain_softmax(self.x.double(), 0).log())

    def forward(self) -> Tensor:
        return torch.ops.warpfuse.log_softmax(self.x, 0, torch.float64)


class SoftmaxAlgorithm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("x", torch.randn(3, 5))
        self.register_buffer("expected", plain_softmax(self.x.double(), 1).log())

    def forward(self) -> Tensor:
        return torch.ops.warpfuse._softmax_algorithm(self.x, 1, "naive", True)


class SoftmaxBackward(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("grad", torch.randn(3, 5))
        self.register_buffer("output", plain_softmax(torch.randn(3, 5), 1))
        g, y = self.grad.double(), self.output.double()
        self.register_buffer("expected", y * (g - (g * y).sum(1, True)))

    def forward(self) -> Tensor:
        return torch.ops.warpfuse._softmax_backward(self.grad, self.output, 1)


class LogSoftmaxBackward(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("grad", torch.randn(3, 5))
        self.register_buffer("output", plain_softmax(torch.randn(3, 5), 1).log())
        g, y = self.grad.double(), self.output.double()
        self.register_buffer("expected", g - y.exp() * g.sum(1, True))

    def forward(self) -> Tensor:
        return torch.ops.warpfuse._log_softmax_backward(self.grad, self.output, 1)


class ScaledMaskedSoftmax(torch.nn.Module):
    """Every argument in use: rules with a filling mask, rules with an additive one, and none."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scores", torch.randn(2, 2, 3, 4))
        self.register_buffer("visible", torch.rand(2, 1, 3, 4) > 0.3)
        self.register_buffer("bias", torch.randn(3, 4))
        self.register_buffer("positions", torch.tensor([[0, 2, -1], [3, 9, 1]]))
        self.register_buffer("lengths", torch.tensor([4, 2], dtype=torch.int32))

        logits = self.scores.double() * 0.5
        query, key = torch.arange(3).view(3, 1), torch.arange(4).view(1, 4)
        own = self.positions.clamp(-1, 3).view(2, 1, 3, 1)
        filled = logits.masked_fill(~self.visible, -2.0)
        seen = (key <= own) & (key < self.lengths.view(2, 1, 1, 1)) & (key > own - 2)
        lower_right = key <= query + 1
        results = [
            hidden_softmax(filled, seen),
            hidden_softmax(logits + self.bias.double(), lower_right),
            plain_softmax(self.scores.double(), -1),
        ]
        self.register_buffer("expected", torch.cat([result.flatten() for result in results]))

    def forward(self) -> Tensor:
        first = torch.ops.warpfuse.scaled_masked_softmax(
            self.scores, 0.5, self.visible, "none", self.positions, self.lengths, 2, -2.0
        )
        second = torch.ops.warpfuse.scaled_masked_softmax(
            self.scores, 0.5, self.bias, "lower_right", None, None, 0, None
        )
        third = torch.ops.warpfuse.scaled_masked_softmax(self.scores)
        return torch.cat([first.flatten(), second.flatten(), third.flatten()])


class ScaledMaskedSoftmaxBackward(torch.nn.Module):
    def __init__(self):
        super().__init__()
        seen = torch.arange(4).view(1, 4) <= torch.arange(3).view(3, 1)
        self.register_buffer("visible", torch.rand(2, 1, 3, 4) > 0.3)
        self.register_buffer("lengths", torch.tensor([4, 2]))
        seen = seen & self.visible & (torch.arange(4) < self.lengths.view(2, 1, 1, 1))
        self.register_buffer("grad", torch.randn(2, 2, 3, 4))
        self.register_buffer("output", hidden_softmax(torch.randn(2, 2, 3, 4), seen))
        g, y = self.grad.double(), self.output.double()
        self.register_buffer("expected", 0.5 * y * (g - (g * y).sum(-1, True)))

    def forward(self) -> Tensor:
        return torch.ops.warpfuse._scaled_masked_softmax_backward(
            self.grad, self.output, 0.5, self.visible, "upper_left", None, self.lengths, 0, None
        )


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


def flat(*tensors: Tensor) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


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
class DropoutSoftmax(torch.nn.Module):
    """What does not depend on chance: everything dropped, and nothing."""

    def __init__(self):
        super().__init__()
        self.register_buffer("x", torch.randn(3, 5))
        self.register_buffer(
            "expected", torch.cat([torch.full((3, 5), 0.2).double(), plain_softmax(self.x.double(), 1)])
        )

    def forward(self) -> Tensor:
        dropped = torch.ops.warpfuse.dropout_softmax(self.x, 1, 1.0, True)
        return torch.cat([dropped, torch.ops.warpfuse.dropout_softmax(self.x, -1, 0.5, False)])


class SoftmaxDropout(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("x", torch.randn(3, 5))
        self.register_buffer(
            "expected", torch.cat([torch.zeros(3, 5).double(), plain_softmax(self.x.double(), 0)])
        )

    def forward(self) -> Tensor:
        dropped = torch.ops.warpfuse.softmax_dropout(self.x, 1, 1.0, True)
        return torch.cat([dropped, torch.ops.warpfuse.softmax_dropout(self.x, 0, 0.5, False)])


class LinearDropoutSoftmax(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("x", torch.randn(3, 5))
        self.register_buffer("weight", torch.randn(4, 5))
        self.register_buffer("bias", torch.randn(4))
        logits = self.x.double() @ self.weight.double().T
        kept = plain_softmax(logits + self.bias.double(), 1)
        self.register_buffer("expected", torch.cat([torch.full((3, 4), 0.25).double(), kept]))

    def forward(self) -> Tensor:
        dropped = torch.ops.warpfuse.linear_dropout_softmax(self.x, self.weight, None, 1.0, True)
        kept = torch.ops.warpfuse.linear_dropout_softmax(
            self.x, self.weight, self.bias, 0.5, False
        )
        return torch.cat([dropped, kept])


class ScaledMaskedSoftmaxDropout(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scores", torch.randn(2, 2, 3, 4))
        self.register_buffer("visible", torch.rand(2, 1, 3, 4) > 0.3)
        self.register_buffer("positions", torch.tensor([[0, 2, -1], [3, 9, 1]]))
        self.register_buffer("lengths", torch.tensor([4, 2], dtype=torch.int32))
        filled = (self.scores.double() * 0.5).masked_fill(~self.visible, -2.0)
        key, own = torch.arange(4).view(1, 4), self.positions.clamp(-1, 3).view(2, 1, 3, 1)
        seen = (key <= own) & (key < self.lengths.view(2, 1, 1, 1)) & (key > own - 2)
        kept = hidden_softmax(filled, seen)
        self.register_buffer("expected", torch.cat([torch.zeros_like(kept), kept]))

    def forward(self) -> Tensor:
        dropped = torch.ops.warpfuse.scaled_masked_softmax_dropout(
            self.scores, 1.0, None, "upper_left", None, None, 0, None, 1.0, True
        )
        kept = torch.ops.warpfuse.scaled_masked_softmax_dropout(
            self.scores, 0.5, self.visible, "none", self.positions, self.lengths, 2, -2.0, 0.3, False
        )
        return torch.cat([dropped, kept])


class DropoutSoftmaxWithRng(torch.nn.Module):
    """Both orders with given random numbers: output, statistics and rng."""

    def __init__(self):
        super().__init__()
        self.register_buffer("x", torch.randn(3, 5))
        self.register_buffer("rng", torch.tensor([7, 4]))
        factors = plain_factors((3, 5), 0.3, self.rng)
        x = self.x.double()
        parts = [plain_softmax(x * factors, 0), self.rng.double()]
        parts += [plain_softmax(x, 1) * factors, row_statistics(x), self.rng.double()]
        self.register_buffer("expected", torch.cat([part.flatten() for part in parts]))

    def forward(self) -> Tensor:
        first, none, rng = torch.ops.warpfuse._dropout_softmax(self.x, 0, 0.3, False, self.rng)
        last, rows, used = torch.ops.warpfuse._dropout_softmax(self.x, 1, 0.3, True, self.rng)
        return torch.cat([
            first.flatten(), none, rng.float(), last.flatten(), rows.flatten(), used.float()
        ])


class DropoutSoftmaxBackward(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("grad", torch.randn(3, 5))
        self.register_buffer("x", torch.randn(3, 5))
        self.register_buffer("rng", torch.tensor([7, 4]))
        factors = plain_factors((3, 5), 0.3, self.rng)
        g, x = self.grad.double(), self.x.double()
        y = plain_softmax(x * factors, 1).float()
        self.register_buffer("output", y)
        self.register_buffer("statistics", row_statistics(x).float())
        y, s, h = y.double(), plain_softmax(x, 1), g * factors
        first = factors * y * (g - (g * y).sum(1, True))
        self.register_buffer("expected", torch.cat([first, s * (h - (h * s).sum(1, True))]))

    def forward(self) -> Tensor:
        first = torch.ops.warpfuse._dropout_softmax_backward(
            self.grad, self.output, self.statistics, self.rng, 1, 0.3, False
        )
        last = torch.ops.warpfuse._dropout_softmax_backward(
            self.grad, self.x, self.statistics, self.rng, 1, 0.3, True
        )
        return torch.cat([first, last])


class LinearDropoutSoftmaxWithRng(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("x", torch.randn(3, 5))
        self.register_buffer("weight", torch.randn(4, 5))
        self.register_buffer("bias", torch.randn(4))
        self.register_buffer("rng", torch.tensor([7, 4]))
        logits = self.x.double() @ self.weight.double().T + self.bias.double()
        y = plain_softmax(logits * plain_factors((3, 4), 0.3, self.rng), 1)
        self.register_buffer("expected", torch.cat([y.flatten(), self.rng.double()]))

    def forward(self) -> Tensor:
        output, rng = torch.ops.warpfuse._linear_dropout_softmax(
            self.x, self.weight, self.bias, 0.3, self.rng
        )
        return torch.cat([output.flatten(), rng.float()])


class ScaledMaskedSoftmaxDropoutWithRng(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scores", torch.randn(2, 2, 3, 4))
        self.register_buffer("bias", torch.randn(3, 4))
        self.register_buffer("lengths", torch.tensor([4, 0]))
        self.register_buffer("rng", torch.tensor([7, 4]))
        logits = self.scores.double() * 0.5 + self.bias.double()
        seen = torch.arange(4).view(1, 4) <= torch.arange(3).view(3, 1) + 1
        seen = seen & (torch.arange(4) < self.lengths.view(2, 1, 1, 1))
        factors = plain_factors((2, 2, 3, 4), 0.3, self.rng)
        output = hidden_softmax(logits, seen) * factors
        self.register_buffer("expected", torch.cat([output.flatten(), self.rng.double()]))

    def forward(self) -> Tensor:
        output, statistics, rng = torch.ops.warpfuse._scaled_masked_softmax_dropout(
            self.scores, 0.5, self.bias, "lower_right", None, self.lengths, 0, None, 0.3, self.rng
        )
        return torch.cat([output.flatten(), rng.float()])


class ScaledMaskedSoftmaxDropoutBackward(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("grad", torch.randn(2, 3, 4))
        self.register_buffer("scores", torch.randn(2, 3, 4))
        self.register_buffer("visible", torch.rand(2, 3, 4) > 0.3)
        self.visible[..., 0] = True
        self.register_buffer("rng", torch.tensor([7, 4]))
        seen = self.visible & (torch.arange(4).view(1, 4) <= torch.arange(3).view(3, 1))
        logits = (self.scores.double() * 0.5).masked_fill(~seen, -torch.inf)
        self.register_buffer("statistics", row_statistics(logits).float())
        s = hidden_softmax(logits, seen)
        h = self.grad.double() * plain_factors((2, 3, 4), 0.3, self.rng)
        self.register_buffer("expected", 0.5 * s * (h - (h * s).sum(-1, True)))

    def forward(self) -> Tensor:
        return torch.ops.warpfuse._scaled_masked_softmax_dropout_backward(
            self.grad, self.scores, self.statistics, self.rng, 0.5, self.visible, "upper_left",
            None, None, 0, None, 0.3
        )


class DropoutMask(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rng", torch.tensor([7, 4]))
        self.register_buffer("like", torch.zeros(40, 50))
        self.register_buffer("expected", (plain_factors((40, 50), 0.3, self.rng) != 0).double())

    def forward(self) -> Tensor:
        return torch.ops.warpfuse._dropout_mask(self.like, 0.3, self.rng).double()


class BuildInfo(torch.nn.Module):
    def forward(self) -> str:
        return torch.ops.warpfuse.build_info()


class DeviceInfo(torch.nn.Module):
    def forward(self) -> str:
        return torch.ops.warpfuse.device_info()


class CallCount(torch.nn.Module):
    def forward(self) -> int:
        return torch.ops.warpfuse.call_count("softmax.cpu")


class CallCounts(torch.nn.Module):
    def forward(self) -> str:
        return torch.ops.warpfuse.call_counts()


class ResetCallCounts(torch.nn.Module):
    def forward(self) -> int:
        torch.ops.warpfuse.reset_call_counts()
        return torch.ops.warpfuse.call_count("softmax.cpu")


class Tuning(torch.nn.Module):
    def forward(self) -> str:
        return torch.ops.warpfuse.tuning()


class SetTuning(torch.nn.Module):
    def forward(self) -> str:
        torch.ops.warpfuse._set_tuning(torch.ops.warpfuse.tuning())
        return torch.ops.warpfuse.tuning()


class Launches(torch.nn.Module):
    def forward(self) -> str:
        return torch.ops.warpfuse._launches()


class RecordLaunches(torch.nn.Module):
    def forward(self) -> str:
        torch.ops.warpfuse._record_launches(True)
        torch.ops.warpfuse._record_launches(False)
        return torch.ops.warpfuse._launches()


def philox(seed, block, offset):
    """The eight draws of 16 bits of a block: Philox4x32 with seven rounds, in plain integers."""
    word = 0xFFFFFFFF
    c = [block & word, block >> 32, offset & word, offset >> 32]
    k = [seed & word, seed >> 32]
    for _ in range(7):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & word, (p0 >> 32) ^ c[3] ^ k[1], p0 & word]
        k = [(k[0] + 0x9E3779B9) & word, (k[1] + 0xBB67AE85) & word]
    return [value >> shift & 0xFFFF for value in c for shift in (0, 16)]


def plain_factors(shape, p, rng):
    """What each element is multiplied by: 0 where its number of 32 bits is below p * 2^32."""
    seed, offset = rng.tolist()
    factors = torch.empty(shape, dtype=torch.float64)
    for i in range(factors.numel()):
        upper = philox(seed, i // 8, offset)[i % 8]
        lower = philox(seed, i // 8, offset | 1 << 63)[i % 8]
        dropped = (upper << 16 | lower) < round(p * 2**32)
        factors.view(-1)[i] = 0.0 if dropped else 1 / (1 - p)
    return factors


def row_statistics(x):
    """Maximum and log(sum(exp(x - maximum))) of each row."""
    top = x.amax(-1, True)
    return torch.cat([top, (x - top).exp().sum(-1, True).log()], -1).view(-1, 2)


def plain_softmax(x: Tensor, dim: int) -> Tensor:
    exponentials = (x - x.amax(dim, True)).exp()
    return exponentials / exponentials.sum(dim, True)


def hidden_softmax(logits: Tensor, seen: Tensor) -> Tensor:
    exponentials = (logits - logits.amax(-1, True)).exp() * seen
    return exponentials / exponentials.sum(-1, True).clamp(min=1e-30)


MODELS = {
    "softmax": Softmax,
    "log_softmax": LogSoftmax,
    "scaled_masked_softmax": ScaledMaskedSoftmax,
    "fused_logprob": FusedLogprob,
    "fused_logprob_lse": FusedLogprobLse,
    "fused_logprob_entropy": FusedLogprobEntropy,
    "_softmax_algorithm": SoftmaxAlgorithm,
    "_softmax_backward": SoftmaxBackward,
    "_log_softmax_backward": LogSoftmaxBackward,
    "_scaled_masked_softmax_backward": ScaledMaskedSoftmaxBackward,
    "_fused_logprob": FusedLogprobStatistics,
    "_fused_logprob_backward": FusedLogprobBackward,
    "_fused_logprob_backward_": FusedLogprobBackwardInPlace,
    "dropout_softmax": DropoutSoftmax,
    "softmax_dropout": SoftmaxDropout,
    "linear_dropout_softmax": LinearDropoutSoftmax,
    "scaled_masked_softmax_dropout": ScaledMaskedSoftmaxDropout,
    "_dropout_softmax": DropoutSoftmaxWithRng,
    "_dropout_softmax_backward": DropoutSoftmaxBackward,
    "_linear_dropout_softmax": LinearDropoutSoftmaxWithRng,
    "_scaled_masked_softmax_dropout": ScaledMaskedSoftmaxDropoutWithRng,
    "_scaled_masked_softmax_dropout_backward": ScaledMaskedSoftmaxDropoutBackward,
    "_dropout_mask": DropoutMask,
    "build_info": BuildInfo,
    "device_info": DeviceInfo,
    "call_count": CallCount,
    "call_counts": CallCounts,
    "reset_call_counts": ResetCallCounts,
    "tuning": Tuning,
    "_set_tuning": SetTuning,
    "_launches": Launches,
    "_record_launches": RecordLaunches,
}


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make.py LIBWARPFUSE.SO")
    torch.ops.load_library(sys.argv[1])
    for name, model in MODELS.items():
        path = FOLDER / f"{name}.pt"
        if not path.exists():
            torch.manual_seed(11)
            torch.jit.save(torch.jit.script(model().eval()), str(path))
            print(path)


if __name__ == "__main__":
    main()
